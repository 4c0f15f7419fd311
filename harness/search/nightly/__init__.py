"""The chain of a night: fetch, run, compare, bisect, publish."""
