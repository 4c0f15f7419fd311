"""Waiting for what another process or thread does."""

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object],
    name: str | Callable[[], str] = "the condition",
    seconds: float = 60.0,
) -> None:
    """Return once the condition holds; fail the test at the deadline."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{name if isinstance(name, str) else name()}: too late"
        time.sleep(0.02)
