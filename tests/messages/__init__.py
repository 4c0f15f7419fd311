"""Messages that the libraries and drivers around the NPU can write."""
