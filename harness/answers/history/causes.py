"""Which failures have one cause: those that ended alike, with one signature (pure)."""

from __future__ import annotations

import hashlib

from harness.answers.history.attempts import Attempt
from harness.verdict.results.coverage import LOST_TO


def cause_of(attempt: Attempt | None) -> str | None:
    """The id of the cause for which a case fails, or has no verdict; None if it does neither, or
    fails as a known issue expects."""
    return cause_id(attempt) if attempt is not None and attempt.is_unexplained else None


def cause_id(attempt: Attempt) -> str:
    """The id of what went wrong, whether or not a known issue expects it."""
    return hashed(f"{LOST_TO.get(attempt.standing, attempt.outcome)} {attempt.signature}")


def hashed(text: str) -> str:
    """A text as an id of twelve characters."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
