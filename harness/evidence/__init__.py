"""What a device's logs and properties say of a failure."""
