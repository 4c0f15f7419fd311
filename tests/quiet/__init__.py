"""Logs in which no NPU failed: of other programs' failures, of healthy systems, of good runs."""
