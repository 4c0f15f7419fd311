"""Devices: how each is reached, which the lab has, what lies on them, and simulated ones."""
