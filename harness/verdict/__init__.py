"""What a case came to and why: failures and their causes, records, the journal."""
