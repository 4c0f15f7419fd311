"""What a test holds in its hand: a device made ready, and a way to say what was found out."""
