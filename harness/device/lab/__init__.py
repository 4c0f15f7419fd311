"""The lab: which devices there are, who holds them, and whether they are fit."""
