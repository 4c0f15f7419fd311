"""The search for the fewest contexts, or the smallest model, that still fail."""
