"""The history of cases from run to run."""
