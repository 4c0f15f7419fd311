"""Messages and progress of slow work for the user, by way of logging and followers.

Progress is logged as INFO, and shown on a terminal; messages that must be seen, even in a pipe, are
WARNINGs. `report_progress` reports progress, many times a second, to the followers.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

# Below every handler's level: pytest's own handlers come after ours, and would repeat a message
# that was shown already, with a device's raw text in it, on the terminal or in a case's report.
_SHOWN: Final = -1

Follower = Callable[[str, Mapping[str, object]], None]
"""A function of a device, by its name or its adb serial ("": this computer), and of facts."""

_followers: Final[list[Follower]] = []


ONCE: Final[Mapping[str, object]] = {"once": True}
"""The `extra` of a warning that is shown once, however often it is logged."""


class Notices(logging.Handler):
    """Handler that shows messages with two functions, which take one line without its newline."""

    def __init__(self, *, progress: Callable[[str], None], warn: Callable[[str], None]) -> None:
        super().__init__()
        self._progress = progress
        self._warn = warn
        self._shown = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record; errors, such as a closed pipe, are raised."""
        show = self._warn if record.levelno >= logging.WARNING else self._progress
        record.levelno = _SHOWN
        message = record.getMessage()
        if getattr(record, "once", False):
            if message in self._shown:
                return
            self._shown.add(message)
        show(message)


@contextlib.contextmanager
def shown_by(handler: logging.Handler) -> Iterator[None]:
    """Make this handler the only one for the harness's log messages."""
    logger = logging.getLogger("harness")
    before = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])


def followed() -> bool:
    """Return whether there is any follower of progress."""
    return bool(_followers)


def report_progress(device: str, **facts: object) -> None:
    """Report facts about a device's work: they replace earlier ones, None removes one.

    `name` is the device's name in the lab. `case` is its case, which removes the facts of the case
    before. `step` of `steps` is running, `verb` says what it does, and `loaded` of `contexts` are
    loaded. `doing` is any other work, of which `done` of `total` is done (`unit` is MB if these are
    bytes).
    """
    for follower in tuple(_followers):
        follower(device, facts)


@contextlib.contextmanager
def progress_reporter(device: str) -> Iterator[Callable[..., None]]:
    """Yield a reporter of `doing`, `done`, `total` and `unit`, which are over after the block."""

    def report(doing: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        report_progress(device, doing=doing, done=done, total=total, unit=unit)

    try:
        yield report
    finally:
        report_progress(device, doing=None, done=None, total=None, unit=None)


@contextlib.contextmanager
def followed_by(follower: Follower) -> Iterator[None]:
    """Report to this follower, too, until the block ends."""
    _followers.append(follower)
    try:
        yield
    finally:
        _followers.remove(follower)
