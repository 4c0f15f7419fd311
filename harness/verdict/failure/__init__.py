"""Why a case failed: its verdict, its error, how that came about, and known kinds."""
