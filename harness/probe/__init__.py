"""The program that runs on the device: what it is told, and what it answers."""
