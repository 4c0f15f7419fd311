"""Places of labgrid, with a real coordinator and a real exporter."""
