"""Live progress of a run on a terminal: a line for it, and one for each busy device, by rich.

Output of pytest appears above them. rich takes whole lines only, so an unfinished one (the dots of
a file) is shown as the first of the live lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Mapping
from typing import Any, Final, TextIO

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from harness.core.notices import followed_by
from harness.core.outgoing_text import one_line
from harness.plugin.progress import MAX_CHARS, RunCounts, details

_LEAST_ROWS: Final = 4
_PER_SECOND: Final = 8


class _Terminal(io.TextIOWrapper):
    """A file whose terminal may go away without an error of the run."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


class Show(Live):
    """The live lines of a run, from `start` to `stop`, and pytest's output file meanwhile."""

    def __init__(self, counts: RunCounts, file: TextIO, *, colours: bool) -> None:
        """Take the `file` of a terminal. Raises OSError for another file.

        It is written to by a descriptor of its own, since the output of tests is captured.
        """
        file.flush()
        raw = os.fdopen(os.dup(file.fileno()), "wb")
        self._file = _Terminal(raw, encoding=file.encoding, errors="replace")
        os.get_terminal_size(self._file.fileno())
        self._counts, self._begun_at = counts, time.monotonic()
        self._names: dict[str, str] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._unfinished = ""
        self._is_over = True
        self._following = contextlib.ExitStack()
        super().__init__(
            console=Console(
                file=self._file,
                force_terminal=True,
                color_system="standard" if colours else None,
                highlight=False,
                _environ={},
            ),
            refresh_per_second=_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._lines,
        )

    def start(self, refresh: bool = False) -> None:
        """Draw the lines, and follow the progress of devices, until `stop`."""
        self._is_over = False
        self._following.enter_context(followed_by(self._follow))
        super().start(refresh)

    def stop(self, *, clear: bool = True) -> None:
        """Remove the lines, and print the line that pytest has begun.

        Without `clear` nothing is written: other output is below the lines already.
        """
        if self._is_over:
            return
        self._following.close()
        with self._lock:
            rest, self._unfinished = self._unfinished if clear else "", ""
        self._is_over, self.console.quiet = True, not clear
        super().stop()
        self._file.write(rest if clear else "\x1b[?25h")
        with contextlib.suppress(OSError):
            self._file.close()

    def write(self, text: str) -> int:
        """Write whole lines above the live ones; the rest waits for its end."""
        with self._lock:
            whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
            if newline:
                self.console.print(Text.from_ansi(whole), soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        """Do nothing: only an unfinished line is buffered."""

    def _lines(self) -> Group | Text:
        """Return the line that pytest has begun, and those of the run and of busy devices."""
        columns = rows = 0
        if not self._is_over:
            with contextlib.suppress(OSError):
                columns, rows = os.get_terminal_size(self._file.fileno())
                self.console.size = ConsoleDimensions(columns or 80, rows or 24)
        if not columns or rows < _LEAST_ROWS:
            return Text()
        texts = [self._counts.plain_line(time.monotonic() - self._begun_at)]
        texts += [f"{name}  {details(facts)}" for name, facts in self._facts.items() if facts]
        lines = [Text(text, no_wrap=True, overflow="ellipsis") for text in texts]
        return (
            Group(Text.from_ansi(self._unfinished), *lines) if self._unfinished else Group(*lines)
        )

    def _follow(self, device: str, new: Mapping[str, object]) -> None:
        new = {
            name: one_line(fact, MAX_CHARS) if isinstance(fact, str) else fact
            for name, fact in new.items()
        }
        with self._lock:
            if isinstance(name := new.pop("name", None), str):
                self._names[device] = name
            name = self._names.get(device, one_line(device, MAX_CHARS)) or "this computer"
            before = {} if "case" in new else self._facts.get(name, {})
            facts = {key: fact for key, fact in (before | new).items() if fact is not None}
            self._facts[name] = facts
