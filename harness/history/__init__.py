"""Runs beside each other: what changed from one to another."""
