"""Goes on with a bisection until it is over, and shows it: run by run, and what came of it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import click

from harness.device.lab.inventory import load_lab
from harness.ground.errors import ConfigError, HarnessError
from harness.ground.errors.outgoing_text import outgoing
from harness.ground.files.cache import cache_root
from harness.libraries.runtimes.catalog import Catalog
from harness.search.bisect.answers import Point, Question, Stopped
from harness.search.bisect.case_run import RunEnd
from harness.search.bisect.driver import Bisection
from harness.search.bisect.findings import Finding
from harness.search.bisect.folder import BisectFolder
from harness.search.bisect.log import Answered, BisectLog, Concluded, Resumed
from harness.search.bisect.loop import Watcher
from harness.search.bisect.match import Judged
from harness.search.bisect.report_text import doubts, held_text, summary
from harness.search.bisect.result import BisectionResult
from harness.search.bisect.search import CornerSpec
from harness.search.bisect.task import Task
from harness.search.bisect.versions import Versions
from harness.search.bisect.write_reports import write_reports
from harness.tools.cli.say import say, say_found

FOUND: Final = 0
NEGATIVE: Final = 1
STOPPED: Final = 3
INTERRUPTED: Final = 130
_WHY_CHARS = 60
_COLORS = {"good": "green", "bad": "red"}


def go_on_with(
    folder: BisectFolder, stop_at: float | None, *, as_json: bool, new: bool = False
) -> int:
    """Goes on with a bisection that is held until it is over; prints what it came to.

    A `new` one of which no run has answered is removed if its input turns out to be wrong. Raises
    HarnessError.
    """
    again = f"to go on: qnn-harness bisect --resume {shlex.quote(shown(folder.path))}"
    try:
        return _go_on(folder, stop_at, again, as_json=as_json)
    except HarnessError as error:
        if new and isinstance(error, ConfigError) and not folder.read().answers():
            folder.discard()
        else:
            say(f"nothing is lost; {again}", err=True)
        raise
    finally:
        folder.close()


def _go_on(folder: BisectFolder, stop_at: float | None, again: str, *, as_json: bool) -> int:
    log = folder.read()
    lab = load_lab(log.spec.lab)
    catalog = Catalog.of(lab, os.environ, cache_root())
    Versions(catalog, log.spec.target).know(log.spec.paths)
    step: Finding | Stopped | None = None
    stopped, code = "the time is over", STOPPED
    try:
        step = Bisection(folder, BisectProgress(log, folder.path), stop_at=stop_at).go_on()
        code = code_of(step)
    except KeyboardInterrupt:
        say("", err=True)
        stopped, code = "stopped", INTERRUPTED
    if isinstance(step, Stopped):
        stopped = f"the lab failed {step.troubles} times in a row"
    finding = None if isinstance(step, Stopped) else step
    result = write_reports(folder, finding, catalog, cache_root())
    printed = result.model_copy(update={"folder": str(folder.path), "exit_code": code})
    say_found(printed, result_lines(result, shown(folder.path)), as_json)
    if finding is None:
        say(f"{stopped}; {again}", err=True)
    return code


def code_of(step: Finding | Stopped | None) -> int:
    """The exit code for how a search ended."""
    if step is None or isinstance(step, Stopped):
        return STOPPED
    return FOUND if step.kind == "change" else NEGATIVE


def shown(path: Path) -> str:
    """A path as it is shortest from here."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


class RunLines(Watcher):
    """Tells of each run: a terminal what runs and then its answer, a pipe a line for each answer.

    It goes to stderr, so that stdout holds the result and nothing else.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._anew = "\r\x1b[2K" if self._terminal else ""

    def asked(self, question: Question) -> None:
        """A run begins: on a terminal its line is shown, to be completed."""
        if self._terminal:
            at = outgoing(self._what(question.at))
            self._say(f"{question.number:3}  {at} ...  {outgoing(question.why)}", end="")

    def answered(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended: the line is written anew."""
        at, answer = outgoing(self._what(question.at)), f"{self._answer(judged):<10}"
        if self._terminal:
            answer = click.style(answer, fg=_COLORS.get(judged.answer, "yellow"))
        why = _short(judged.why)
        self._say(f"{self._anew}{question.number:3}  {at} {answer} {end.seconds:6.1f} s  {why}")

    def remark(self, text: str) -> None:
        """Something else that a person should know."""
        self._say(f"{self._anew}     {outgoing(text)}")

    def _what(self, at: Point) -> str:
        return f"{' with '.join(at):<18}"

    def _answer(self, judged: Judged) -> str:
        return judged.answer

    def _say(self, text: str, end: str = "\n") -> None:
        self._stream.write(text + end)
        self._stream.flush()


class BisectProgress(RunLines):
    """The lines of a bisection: first what it searches, in how many runs, and its folder."""

    def __init__(self, log: BisectLog, folder: Path, stream: IO[str] | None = None) -> None:
        super().__init__(stream)
        self._say(outgoing(next(plan_lines(log.spec))))
        self._say(outgoing(str(folder)))


def plan_lines(task: Task) -> Iterator[str]:
    """Return what a bisection searches and in how many runs, then its versions and devices."""
    yield f"{_searched(task)}: {task.search.bound()}"
    for axis, versions in task.search.versions.items():
        yield f"  {axis}: {', '.join(versions)}"
    yield f"  devices: {', '.join(task.devices)}"


def log_lines(log: BisectLog) -> Iterator[str]:
    """A log for a person, a line an entry."""
    yield next(plan_lines(log.spec))
    for entry in log.entries:
        if isinstance(entry, Answered):
            run = f"  {entry.run}" if entry.run else ""
            yield f"  {' with '.join(entry.at):<18} {entry.answer:<10} {_short(entry.why)}{run}"
        elif isinstance(entry, Resumed):
            yield "  resumed"
        elif isinstance(entry, Concluded):
            yield entry.text
    under_way = log.under_way()
    if under_way is not None:
        yield f"  {' with '.join(under_way.at):<18} under way, or cut off ({under_way.why})"


def result_lines(result: BisectionResult, folder: str) -> Iterator[str]:
    """What a bisection came to."""
    yield from doubts(result)
    if result.answer is not None:
        yield result.answer.text
        yield from (f"  {line}" for line in summary(result))
        yield f"report: {folder}/report.html, as a bug report: {folder}/report.md"
    else:
        yield f"not over yet, {len(result.runs)} runs were made: {folder}"


def _searched(task: Task) -> str:
    search = task.search
    if isinstance(search, CornerSpec):
        pairs = (zip(search.axes, at, strict=True) for at in (search.good, search.bad))
        good, bad = (" with ".join(map(" ".join, pair)) for pair in pairs)
        text = f"corners of {' and '.join(search.axes)}: good {good}, bad {bad}"
    else:
        searched = search.searched()
        ends = f"{searched[0]} to {searched[-1]}"
        text = f"bisecting {search.axis} over {len(searched)} versions, {ends}"
    held = held_text(task.held)
    return f"{text} ({held} held)" if held else text


def _short(text: str) -> str:
    plain = " ".join(outgoing(text).split())
    return plain if len(plain) <= _WHY_CHARS else plain[:_WHY_CHARS] + "..."
