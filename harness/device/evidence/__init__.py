"""What a device can tell about a case that went wrong."""
