"""Places of a labgrid lab: reserved, kept and given back by a process of their own."""
