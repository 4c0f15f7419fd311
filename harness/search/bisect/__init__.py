"""Finds the version that changed something, on one axis or two, flaky or not."""
