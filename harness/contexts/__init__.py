"""Context binaries: where they come from, what they need, whether they fit."""
