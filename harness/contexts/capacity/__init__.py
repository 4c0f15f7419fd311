"""Whether contexts fit into protection domains: measured, packed, forecast."""
