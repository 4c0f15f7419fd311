"""The search for the version that changed an outcome."""
