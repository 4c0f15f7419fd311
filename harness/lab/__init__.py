"""The lab: which devices there are and what is known about them."""
