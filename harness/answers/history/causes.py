"""Causes of failures: cases of one test that ended alike, with one signature (pure)."""

from __future__ import annotations

import hashlib

from harness.answers.history.attempts import Attempt
from harness.verdict.results.coverage import LOST_TO


def cause_of(attempt: Attempt | None) -> str | None:
    """The id of the cause for which a case fails, or has no verdict; None if it does neither, or
    fails as a known issue expects."""
    return cause_id(attempt) if attempt is not None and attempt.is_unexplained else None


def cause_id(attempt: Attempt) -> str:
    """Return the id of what went wrong, whether or not a known issue expects it.

    A test has its own, since failures of many kinds share a signature such as SIGABRT. So has a
    device that the lab lost, whatever the message: numbers in it, and so in names, are masked; or
    the adb server, where all its devices were lost with that.
    """
    if attempt.standing == "lab" and (attempt.server or attempt.device is not None):
        return hashed(f"{LOST_TO['lab']} {attempt.server or attempt.device}")
    test = attempt.test.partition("[")[0]
    return hashed(f"{LOST_TO.get(attempt.standing, attempt.outcome)} {attempt.signature} {test}")


def hashed(text: str) -> str:
    """A text as an id of twelve characters."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
