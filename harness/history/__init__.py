"""What became of cases from run to run."""
