"""The program that runs on the device, its input (plans) and its output (events)."""
