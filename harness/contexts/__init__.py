"""Context binaries: the models they are made from, and the real compiler that makes them."""
