"""What slow work tells its user: rooms log it, and whoever talks to the user shows it.

Progress is logged as INFO, and seen where somebody is looking; what must be seen, even in a pipe,
is a WARNING.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final

# Below what any handler takes. pytest hangs its own behind ours, and would repeat in the report of
# a case, or on a terminal, what was shown, with all that a device said in it.
_SHOWN: Final = -1


class Notices(logging.Handler):
    """Shows what is logged with two functions, which take one line each, without its end."""

    def __init__(self, *, progress: Callable[[str], None], warn: Callable[[str], None]) -> None:
        super().__init__()
        self._progress = progress
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        """Shows it; what goes wrong in that, such as a closed pipe, is raised."""
        show = self._warn if record.levelno >= logging.WARNING else self._progress
        record.levelno = _SHOWN
        show(record.getMessage())


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
