"""The qnn-harness command: thin commands over the rooms below."""
