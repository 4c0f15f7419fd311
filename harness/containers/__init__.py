"""Readers of the files that hold context binaries."""
