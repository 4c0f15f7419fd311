"""The commands of `qnn-harness`."""
