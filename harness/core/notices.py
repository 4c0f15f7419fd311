"""What slow work tells its user: rooms log it, and whoever talks to the user shows it.

Progress is logged as INFO, and seen where somebody is looking; what must be seen, even in a pipe,
is a WARNING. `at_work` tells how far the work is, many times a second, to whoever follows it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

# Below what any handler takes. pytest hangs its own behind ours, and would repeat in the report of
# a case, or on a terminal, what was shown, with all that a device said in it.
_SHOWN: Final = -1

Follower = Callable[[str, Mapping[str, object]], None]
"""Takes a device, by its name or as its adb server calls it ("": this computer), and facts."""

_followers: Final[list[Follower]] = []


ONCE: Final[Mapping[str, object]] = {"once": True}
"""The `extra` of a warning that is to be seen once, however often it is logged."""


class Notices(logging.Handler):
    """Shows what is logged with two functions, which take one line each, without its end."""

    def __init__(self, *, progress: Callable[[str], None], warn: Callable[[str], None]) -> None:
        super().__init__()
        self._progress = progress
        self._warn = warn
        self._shown = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Shows it; what goes wrong in that, such as a closed pipe, is raised."""
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
    """Has this handler alone show what the harness logs, and none of those of the root logger."""
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
    """Whether anybody wants to know how far something is."""
    return bool(_followers)


def at_work(device: str, **facts: object) -> None:
    """Tells what a device is at: facts replace those told before, None takes one back.

    `name` is what the lab calls the device. `case` is its case, which takes back what was told of
    the case before. `step` of `steps` is under way, `verb` says what it does, and `loaded` of
    `contexts` are loaded. `doing` is anything else, of which `done` of `total` is done (`unit` is
    MB where these are bytes). `degrees` is how hot it was when it last said so.
    """
    for follower in tuple(_followers):
        follower(device, facts)


def far(doing: str | None, done: int = 0, total: int = 0, unit: str = "") -> dict[str, object]:
    """The facts that say how far something is; None: it is over."""
    if doing is None:
        return dict.fromkeys(("doing", "done", "total", "unit"))
    return {"doing": doing, "done": done, "total": total, "unit": unit}


@contextlib.contextmanager
def working(device: str) -> Iterator[Callable[..., None]]:
    """Gives what tells how far a device's work is, as `far`; the work ends with the block."""
    try:
        yield lambda *how_far: at_work(device, **far(*how_far))
    finally:
        at_work(device, **far(None))


@contextlib.contextmanager
def followed_by(follower: Follower) -> Iterator[None]:
    """Tells this follower, too, until the block ends."""
    _followers.append(follower)
    try:
        yield
    finally:
        _followers.remove(follower)
