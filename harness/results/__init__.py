"""What a run found out: records, journal, verdicts, known issues and their projections."""
