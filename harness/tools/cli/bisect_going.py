"""Goes on with bisections until they are over, and shows them: run by run, and what came of it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import click

from harness.device.lab.inventory import load_lab
from harness.ground.errors import ConfigError, HarnessError
from harness.ground.errors.outgoing_text import outgoing
from harness.ground.files.cache import cache_root
from harness.libraries.runtimes.catalog import Catalog
from harness.search.bisect.answers import Point, Question, Stopped
from harness.search.bisect.case_run import MisfitError, RunEnd
from harness.search.bisect.driver import Bisection
from harness.search.bisect.findings import Finding
from harness.search.bisect.folder import BisectFolder
from harness.search.bisect.log import LEFT_OUT, Answered, Asked, BisectLog, Concluded, Resumed
from harness.search.bisect.loop import Watcher
from harness.search.bisect.match import Judged
from harness.search.bisect.report_text import doubts, held_text, summary
from harness.search.bisect.result import BisectionNotBegun, BisectionResult
from harness.search.bisect.search import CornerSpec
from harness.search.bisect.task import Task
from harness.search.bisect.versions import Versions
from harness.search.bisect.write_reports import write_reports
from harness.tools.cli.say import say, say_json

FOUND: Final = 0
NEGATIVE: Final = 1
STOPPED: Final = 3
INTERRUPTED: Final = 130
_FOUND = "change"
_WHY_CHARS = 60
_DECIDED = {_FOUND, "no-change"}
_Result = BisectionResult | BisectionNotBegun
_COLORS = {"good": "green", "bad": "red"}


@dataclass(frozen=True)
class _End:
    """How far a bisection got, and `why` it is not over, if it is not."""

    code: int
    result: _Result
    why: str | None = None


def go_on_with(
    folders: Sequence[BisectFolder], stop_at: float | None, *, as_json: bool, new: bool = False
) -> int:
    """Goes on with bisections that are held until each is over; prints what they came to.

    What stops one stops those behind it, too, and one line says how to go on with all. `new` ones
    of which no run has answered are removed if their input turns out to be wrong. Of several
    bisections, one for a device that the case does not fit, or for an engine that does not take the
    file, is left out. Its log says why. Raises HarnessError.
    """
    ends: list[_End] = []
    results: dict[BisectFolder, _Result] = {}
    left_out: dict[BisectFolder, str] = {}
    try:
        for folder in folders:
            if (known := folder.read().left_out) is not None:
                left_out[folder] = known
                continue
            try:
                if ends and ends[-1].why is not None:
                    end = _End(ends[-1].code, _not_begun(folder), ends[-1].why)
                else:
                    end = _go_on(folder, stop_at, as_json=as_json)
                ends.append(end)
                results[folder] = end.result
            except ConfigError as error:
                task = folder.read().spec
                fits = task.on is None or not (task.engine or isinstance(error, MisfitError))
                if fits or folder.read().answers() or len(left_out) == len(folders) - 1:
                    raise
                why = f"{task.on} is left out: {error}"
                folder.append(Concluded(text=why, detail={LEFT_OUT: why}))
                left_out[folder] = why
                say(why, err=True)
        each = bool(left_out) or any(end.result.on is not None for end in ends)
        if as_json:
            every = [
                results.get(folder) or _not_begun(folder, left_out[folder]) for folder in folders
            ]
            say_json(every if each or len(every) > 1 else every[0])
        elif each:
            for line in (*together(list(results.values())), *left_out.values()):
                say(line)
        if ends and ends[-1].why is not None:
            say(f"{ends[-1].why}; {_again(folders, left_out)}", err=True)
    except HarnessError as error:
        begun = (one for one in folders if one not in left_out)
        if (
            new
            and isinstance(error, ConfigError)
            and not any(one.read().answers() for one in begun)
        ):
            for folder in folders:
                folder.discard()
        else:
            say(f"nothing is lost; {_again(folders, left_out)}", err=True)
        raise
    finally:
        for folder in folders:
            folder.close()
    code = max((end.code for end in ends), default=NEGATIVE)
    return code_of_each(list(results.values())) if each and code <= NEGATIVE else code


def _again(folders: Sequence[BisectFolder], gone: Collection[BisectFolder]) -> str:
    left = [folder for folder in folders if folder not in gone]
    every = f" with all {len(left)} bisections" if len(left) > 1 else ""
    return f"to go on{every}: qnn-harness bisect --resume {shlex.quote(shown(left[0].path))}"


def together(results: Sequence[_Result]) -> Iterator[str]:
    """What was found on several devices or with several engines: those that answered the same are
    named together."""
    said: dict[str, list[str]] = {}
    for result in results:
        answer = result.answer if isinstance(result, BisectionResult) else None
        said.setdefault(answer.text if answer else "not over", []).append(str(result.on))
    for text, names in said.items():
        yield f"{'with' if results[0].engine else 'on'} {' and '.join(names)}: {text}"


def code_of_each(results: Sequence[_Result]) -> int:
    """Something is found if each device has its answer, and something differs."""
    answers = [
        result.answer for result in results if isinstance(result, BisectionResult) and result.answer
    ]
    kinds = {answer.kind for answer in answers}
    differ = len({answer.verdict for answer in answers}) > 1 or _FOUND in kinds
    return FOUND if differ and kinds <= _DECIDED else NEGATIVE


def _go_on(folder: BisectFolder, stop_at: float | None, *, as_json: bool) -> _End:
    log = folder.read()
    task = log.spec
    step: Finding | Stopped | None = None
    try:
        lab = load_lab(task.lab)
        catalog = Catalog.of(lab, os.environ, cache_root())
        Versions(catalog, task.target).know(task.paths)
        step = Bisection(folder, BisectProgress(log, folder.path), stop_at=stop_at).go_on()
    except KeyboardInterrupt:
        say("", err=True)
        return _End(INTERRUPTED, _not_begun(folder), "stopped")
    finding = None if isinstance(step, Stopped) else step
    code = code_of(step)
    result = write_reports(folder, finding, catalog, cache_root())
    told = result.model_copy(update={"folder": str(folder.path), "exit_code": code})
    if not as_json:
        for line in result_lines(result, shown(folder.path)):
            say(line)
    if isinstance(step, Stopped):
        return _End(code, told, f"the lab failed {step.troubles} times in a row")
    return _End(code, told, "the time is over" if step is None else None)


def _not_begun(folder: BisectFolder, left_out: str | None = None) -> BisectionNotBegun:
    """The result of one that was not gone on with."""
    task = folder.read().spec
    return BisectionNotBegun(
        bisect=folder.path.name,
        folder=str(folder.path),
        on=task.on,
        engine=task.engine,
        left_out=left_out,
    )


def code_of(step: Finding | Stopped | None) -> int:
    """The exit code for how a search ended."""
    if step is None or isinstance(step, Stopped):
        return STOPPED
    return FOUND if step.kind == _FOUND else NEGATIVE


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
        if len(searched) == 1:
            text = f"running {search.axis} {searched[0]}"
    if task.on is not None:
        text = f"{'with' if task.engine else 'on'} {task.on}: {text}"
    held = held_text(task.held)
    return f"{text} ({held} held)" if held else text


def _short(text: str) -> str:
    plain = " ".join(outgoing(text).split())
    return plain if len(plain) <= _WHY_CHARS else plain[:_WHY_CHARS] + "..."
