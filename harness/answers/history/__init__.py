"""Runs beside each other and after each other: what changed, since when, where."""
