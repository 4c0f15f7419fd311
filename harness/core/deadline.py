"""One overall deadline for a remote action, passed to every blocking step of it."""

from __future__ import annotations

import math
import time


class Deadline:
    """A time on the monotonic clock, a number of seconds after its creation.

    Raises ValueError for seconds that are negative or not finite: every remote action must end.
    """

    __slots__ = ("_expires", "seconds")

    def __init__(self, seconds: float) -> None:
        if not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"a deadline needs a finite number of seconds >= 0, not {seconds!r}")
        self.seconds = seconds
        self._expires = time.monotonic() + seconds

    def remaining(self) -> float:
        """Return the seconds left, 0.0 once it has passed."""
        return max(0.0, self._expires - time.monotonic())

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._expires

    def at_most(self, seconds: float) -> Deadline:
        """Return a deadline `seconds` from now, but not later than this one."""
        return Deadline(min(seconds, self.remaining()))

    def __repr__(self) -> str:
        return f"Deadline({self.seconds}, {self.remaining():.3f} s left)"
