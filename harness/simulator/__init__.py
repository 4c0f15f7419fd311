"""Simulated devices: an adb daemon, and boards for arm64."""
