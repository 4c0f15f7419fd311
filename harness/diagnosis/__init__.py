"""Error chains, and rules that say why a case failed."""
