"""What every way to a device has in common: a script with a deadline, its certain end, files."""
