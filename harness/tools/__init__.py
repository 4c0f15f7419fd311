"""The command line, and what keeps runs from working."""
