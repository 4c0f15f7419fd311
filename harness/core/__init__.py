"""Errors, files, processes, and tables of facts."""
