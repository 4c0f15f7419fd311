"""Many devices at work at once: which case goes to which of them."""
