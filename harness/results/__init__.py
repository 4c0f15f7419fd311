"""Records, the journal, run folders and known issues."""
