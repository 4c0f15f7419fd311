"""QNN runtimes: where their libraries come from, what they say, and what fits together."""
