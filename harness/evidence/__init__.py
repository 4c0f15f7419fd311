"""Evidence of failures from a device's logs and properties."""
