"""The smallest set of contexts that fails the same way, and cases packed to be handed over."""
