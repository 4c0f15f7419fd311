"""Context binaries: models and the real compiler that makes them of these, or files of users."""
