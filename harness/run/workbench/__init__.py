"""Everything a run needs made ready before its first case: libraries, probe, contexts, devices."""
