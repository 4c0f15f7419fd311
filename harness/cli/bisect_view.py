"""How a bisection is shown: run by run on a terminal, and what it came to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from harness.bisect.answers import Question
from harness.bisect.case_run import RunEnd
from harness.bisect.driver import Watcher
from harness.bisect.log import Answered, Asked, Concluded, Log, Resumed
from harness.bisect.match import Judged
from harness.bisect.report_text import summary
from harness.bisect.result import BisectionResult
from harness.bisect.search import AxisSpec
from harness.errors.outgoing_text import outgoing

_WHY_CHARS = 60
_COLORS = {"good": "green", "bad": "red", "untestable": "yellow", "unknown": "yellow"}


class Progress(Watcher):
    """Tells what goes on: a terminal what runs and then its answer, a pipe a line for each answer.

    It goes to stderr, so that stdout holds the result and nothing else.
    """

    def __init__(self, log: Log, folder: Path, stream: IO[str] | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._anew = "\r\x1b[2K" if self._terminal else ""
        self._say(outgoing(f"{_searched(log)}: {log.search().bound}"))
        self._say(outgoing(str(folder)))

    def asked(self, question: Question) -> None:
        """A run begins: on a terminal its line is shown, to be completed."""
        if self._terminal:
            at = outgoing(" with ".join(question.at))
            self._say(f"{question.number:3}  {at:<18} ...  {outgoing(question.why)}", end="")

    def answered(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended: the line is written anew."""
        at = outgoing(" with ".join(question.at))
        answer = f"{judged.answer:<10}"
        if self._terminal:
            answer = click.style(answer, fg=_COLORS[judged.answer])
        why = _short(judged.why)
        self._say(f"{self._anew}{question.number:3}  {at:<18} {answer} {end.seconds:6.1f} s  {why}")

    def remark(self, text: str) -> None:
        """Something else that a person should know."""
        self._say(f"{self._anew}     {outgoing(text)}")

    def _say(self, text: str, end: str = "\n") -> None:
        self._stream.write(text + end)
        self._stream.flush()


def log_lines(log: Log) -> Iterator[str]:
    """A log for a person, a line an entry."""
    yield f"{_searched(log)}: {log.search().bound}"
    for entry in log.entries:
        if isinstance(entry, Answered):
            run = f"  {entry.run}" if entry.run else ""
            why = _short(str(entry.detail.get("why") or ""))
            yield f"  {' with '.join(entry.at):<18} {entry.answer:<10} {why}{run}"
        elif isinstance(entry, Resumed):
            yield "  resumed"
        elif isinstance(entry, Concluded):
            yield entry.text
    under_way = log.under_way()
    if under_way is not None:
        last = [entry for entry in log.entries if isinstance(entry, Asked)][-1]
        yield f"  {' with '.join(under_way):<18} under way, or cut off ({last.why})"


def result_lines(result: BisectionResult, folder: str) -> Iterator[str]:
    """What a bisection came to."""
    if result.answer is not None:
        yield result.answer.text
        yield from (f"  {line}" for line in summary(result))
        if result.grid:
            yield result.grid
        yield f"report: {folder}/report.html, as a bug report: {folder}/report.md"
    else:
        yield f"not over yet, {len(result.runs)} runs were made: {folder}"


def _searched(log: Log) -> str:
    spec = log.spec
    if isinstance(spec, AxisSpec):
        searched = spec.searched()
        ends = f"{searched[0]} to {searched[-1]}"
        text = f"bisecting {spec.axis} over {len(searched)} versions, {ends}"
    else:
        text = (
            f"bisecting {spec.axes[0]} and {spec.axes[1]} over {len(spec.rows)} x "
            f"{len(spec.columns)} pairs"
        )
    held = ", ".join(f"{axis} {version}" for axis, version in spec.held.items())
    return f"{text} ({held} held)" if held else text


def _short(text: str) -> str:
    plain = " ".join(outgoing(text).split())
    return plain if len(plain) <= _WHY_CHARS else plain[:_WHY_CHARS] + "..."
