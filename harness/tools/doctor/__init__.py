"""What keeps runs from working on this computer, its lab and its devices, and what to do."""
