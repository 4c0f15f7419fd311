"""The pages of a lab."""
