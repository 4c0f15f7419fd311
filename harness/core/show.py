"""Live progress of a run on a terminal: a bar for it, and one for each busy device, by rich.

Output of pytest appears above them. rich takes whole lines only, so an unfinished one (the dots of
a file) is shown as the first of the live lines.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from harness.core.facts import Facts, Lines, RunCounts, clock, details, number
from harness.core.notices import followed_by

_LEAST_ROWS: Final = 4
_BAR_CELLS: Final = 12
_NAME_CELLS: Final = 20
_BARS_FROM_COLUMNS: Final = 60
_PER_SECOND: Final = 8
_MB: Final = 1_000_000


class _Terminal(io.TextIOWrapper):
    """A file whose terminal may go away without an error of the run."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


class _Bar(BarColumn):
    def render(self, task: Task) -> Any:
        return super().render(task) if task.total else Text()


class _Details(ProgressColumn):
    def render(self, task: Task) -> RenderableType:
        parts = [task.fields.get("said", "")]
        if task.fields.get("measured") and task.total:
            scale, unit, digits = (_MB, " MB", 1) if task.fields["unit"] == "MB" else (1, "", 0)
            completed, total = (f"{x / scale:.{digits}f}" for x in (task.completed, task.total))
            parts.append(f"{completed}/{total}{unit}")
            if unit and task.speed:
                parts.append(f"{task.speed / scale:.1f}{unit}/s")
            if task.time_remaining:
                parts.append(f"{clock(task.time_remaining)} left")
        return Text("  ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")


class Show(Progress):
    """The live lines of a run, from `start` to `stop`, and pytest's output file meanwhile."""

    def __init__(self, counts: RunCounts, file: TextIO, *, colours: bool) -> None:
        """Take the `file` of a terminal. Raises OSError for another file.

        It is written to by a descriptor of its own, since the output of tests is captured.
        """
        file.flush()
        raw = os.fdopen(os.dup(file.fileno()), "wb")
        self._file = _Terminal(raw, encoding=file.encoding, errors="replace")
        os.get_terminal_size(self._file.fileno())
        self._counts = counts
        self._merged = Lines()
        self._devices: dict[str, TaskID] = {}
        self._unfinished = ""
        self._is_over = True
        self._following = contextlib.ExitStack()
        column = Column(no_wrap=True, overflow="ellipsis", max_width=_NAME_CELLS)
        name = TextColumn("{task.description}", style="bold", markup=False, table_column=column)
        self._wide = name, _Bar(bar_width=_BAR_CELLS), _Details()
        super().__init__(
            *self._wide,
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
        )
        self._run = self.add_task("", total=counts.total, measured=True, unit="")

    def start(self) -> None:
        """Draw the lines, and follow the progress of devices, until `stop`."""
        self._is_over = False
        self._following.enter_context(followed_by(self._follow))
        super().start()

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

    def ended(self, case: str, *, failed: bool, lab: bool) -> None:
        """Count a finished case."""
        self._counts.ended(case, failed=failed, lab=lab)
        self.update(self._run, completed=self._counts.finished, said=self._counts.bad())

    def write(self, text: str) -> int:
        """Write whole lines above the bars; the rest waits for its end."""
        with self._lock:
            whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
            if newline:
                self.console.print(Text.from_ansi(whole), soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        """Do nothing: only an unfinished line is buffered."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the line that pytest has begun, and the bars of the run and of busy devices."""
        columns = rows = 0
        if not self._is_over:
            with contextlib.suppress(OSError):
                columns, rows = os.get_terminal_size(self._file.fileno())
                self.console.size = ConsoleDimensions(columns or 80, rows or 24)
        if not columns or rows < _LEAST_ROWS:
            yield Text()
            return
        self.columns = self._wide if columns >= _BARS_FROM_COLUMNS else self._wide[::2]
        if self._unfinished:
            yield Text.from_ansi(self._unfinished)
        yield self.make_tasks_table(self.tasks)

    def _follow(self, device: str, facts: Mapping[str, object]) -> None:
        merged = self._merged.merge(device, facts)
        if merged is None:
            return
        name, known = merged
        with self._lock:
            if name not in self._devices:
                self._devices[name] = self.add_task(name, total=None, doing=None)
            self._show(self._devices[name], known)

    def _show(self, task: TaskID, facts: Facts) -> None:
        doing = facts.get("doing")
        if self._tasks[task].fields["doing"] != doing:
            self.reset(task, total=None, doing=doing)
        completed, total = ("done", "total") if doing else ("loaded", "contexts")
        self.update(
            task,
            completed=number(facts, completed),
            total=number(facts, total),
            visible=bool(facts),
            said=details(facts),
            measured=doing is not None,
            unit=facts.get("unit", ""),
        )
