"""What is made of journals: reports, comparisons, history, one run of many parts."""
