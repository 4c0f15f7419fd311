"""Lines that stay below what a program writes to a terminal, and are gone when it ends.

rich.live takes a line for written when it ends, hides the cursor and counts lines upwards to find
its own again. pytest writes dots and goes on behind them, and others write past us: a debugger, a
library. So the cursor stays where the program left it, and what is below is ours. It can be erased
from there, whatever was written or resized meanwhile. No setting of the terminal is changed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

_ERASE: Final = "\x1b[J"
_DOWN: Final = "\x1bD"
_KEEP, _BACK = "\x1b7", "\x1b8"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"

DrawLines = Callable[[int, int], Sequence[str]]
"""The lines for a terminal of so many columns and rows."""


def below(lines: Sequence[str]) -> str:
    """The text that draws lines below the cursor and brings it back from there (pure)."""
    if not lines:
        return ""
    room = f"{_DOWN * len(lines)}\x1b[{len(lines)}A"
    drawn = "".join(f"\r\n{line}" for line in lines)
    return f"{room}{_KEEP}{_NO_WRAP}{drawn}{_WRAP}{_BACK}"


class Screen:
    """Stands in for the file of a terminal; safe to use from any thread.

    It has a descriptor of its own, so that capturing what tests print does not stop it.
    """

    def __init__(self, file: TextIO, lines: DrawLines, width: Callable[[], int]) -> None:
        """`width` is that of the line being written. Raises OSError if `file` has no descriptor."""
        file.flush()
        self._file = file
        self._lines = lines
        self._width = width
        self._size = os.terminal_size((0, 0))
        self._lock = threading.Lock()
        self._drawn: tuple[object, ...] = ()
        self._below = ""
        self._fd = os.dup(file.fileno())

    def write(self, text: str) -> int:
        """Writes where the program is, and the lines below that again."""
        data = text.encode(self._file.encoding or "utf-8", self._file.errors or "strict")
        with self._lock:
            if self._fd < 0:
                return self._file.write(text)
            self._out(_ERASE.encode() + data + self._shown().encode())
        return len(text)

    def flush(self) -> None:
        """Nothing waits here."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def draw(self) -> None:
        """Shows the lines as they are now, if they or the terminal have changed."""
        with self._lock:
            if self._fd < 0 or not self._in_front():
                return
            self._size = size = self._size_now()
            lines = self._lines(size.columns, size.lines)
            if self._drawn == (size, *lines):
                return
            self._drawn = size, *lines
            self._below = below(lines)
            self._out((_ERASE + self._shown()).encode())

    def close(self) -> None:
        """Takes the lines away; what is written from now on goes to the file as ever."""
        with self._lock:
            if self._fd >= 0:
                with contextlib.suppress(OSError):
                    self._out(_ERASE.encode())
                os.close(self._fd)
                self._fd = -1

    def _shown(self) -> str:
        width, size = self._width(), self._size_now()
        # behind the last column a terminal is about to wrap, and forgets that when moved
        at_edge = width > 0 and width % size.columns == 0
        return "" if at_edge or size != self._size else self._below

    def _size_now(self) -> os.terminal_size:
        size = os.get_terminal_size(self._fd)
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def _in_front(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return True

    def _out(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]
