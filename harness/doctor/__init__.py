"""Checks of this computer, the lab and its devices."""
