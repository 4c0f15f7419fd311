"""Errors, files, processes, progress, and tables of facts."""
