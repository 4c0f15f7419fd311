"""The comparison of a model with its reference, layer by layer."""
