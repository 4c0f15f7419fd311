"""Simulated devices: a device-side adb daemon in front of a folder of this host."""
