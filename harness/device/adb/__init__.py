"""Everything between the host and a device: adb server, shell and sync streams, device facade."""
