"""What a run found out: records, journal, known issues, and the reports made from them."""
