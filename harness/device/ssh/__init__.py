"""ssh: shared connections to other computers, and boards that are reached by them alone."""
