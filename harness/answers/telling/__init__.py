"""Who is told what nights and comparisons found: messages by apprise, issues of trackers."""
