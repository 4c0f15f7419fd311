"""One overall deadline for a remote action, handed down to every blocking step of it."""

from __future__ import annotations

import math
import time


class Deadline:
    """A moment on the monotonic clock, a number of seconds from its making.

    Raises ValueError for a number of seconds that is negative or not finite: a remote action
    without an end does not exist here.
    """

    __slots__ = ("_at", "seconds")

    def __init__(self, seconds: float) -> None:
        if not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"a deadline needs a finite number of seconds >= 0, not {seconds!r}")
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, 0.0 once it has passed."""
        return max(0.0, self._at - time.monotonic())

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._at

    def at_most(self, seconds: float) -> Deadline:
        """A deadline `seconds` from now, but never later than this one."""
        return Deadline(min(seconds, self.remaining()))

    def __repr__(self) -> str:
        return f"Deadline({self.seconds}, {self.remaining():.3f} s left)"
