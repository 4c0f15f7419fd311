"""What a run found out: records, their measurements, the journal, known issues."""
