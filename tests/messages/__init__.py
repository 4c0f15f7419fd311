"""What the libraries and drivers around the NPU can say, taken out of them and of their sources."""
