"""The one program that runs on a device: its plan, its events, how it is built and run."""
