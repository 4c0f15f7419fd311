"""What is made of a run's journal: its page, JUnit, summary; and the folder that holds them."""
