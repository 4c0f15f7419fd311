"""Ways to a device other than adb and ssh."""
