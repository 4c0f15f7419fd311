"""The loop of every search: asks, runs the case in a pytest of its own, writes the answer down."""

from __future__ import annotations

import logging
import math
import re
import shlex
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import JsonValue

from harness.bisect.folder import Answered, Concluded, Resumed, SearchFolder
from harness.bisect.match import Judged, Match, Point, Question, Stopped
from harness.bisect.search import Search
from harness.core.cache import PRIVATE
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError
from harness.core.guard import RUN_GRACE_S, GuardedProcess, spawn_guarded
from harness.core.outgoing_text import INSTEAD, log_without_secrets, without_secrets
from harness.core.whole_file import disk_errors
from harness.history.previous import asked_when_bad
from harness.plugin.own_contexts import is_of_a_file
from harness.plugin.problem import Problem, read_problem
from harness.results.asked_of_files import asked_of_files, for_pytest
from harness.results.drift import Output
from harness.results.record import CaseRecord
from harness.results.run_folder import JOURNAL, LATEST, RunFolder

_log = logging.getLogger(__name__)

OUTPUT: Final = "output.txt"
_LOOK_S: Final = 1.0
_WAITS: Final = b"warning: waiting"
PROBLEM: Final = "problem.json"
_KEPT_BYTES = 64 * 1024
_MOST_OUTPUT_BYTES: Final = 16 << 20
"""So much is kept of what a run printed, from its end."""
_USAGE, _NOTHING_SELECTED = 4, 5
_ERROR_LINE = re.compile(r"^(?:error|ERROR): (.+)$", re.MULTILINE)


def asked_as_before(case: str, reports: Path, words: Sequence[str]) -> tuple[str, ...]:
    """The words for pytest, and of a file of a user's also what was asked of it when it failed.

    Without its inputs, expected outputs and limits it would be another question.
    """
    if not is_of_a_file(case) or asked_of_files(words):
        return tuple(words)
    run, asked = asked_when_bad(reports, case)
    if more := tuple(for_pytest(asked)):
        _log.warning("asked of the file as in %s: %s", run, shlex.join(more))
    return (*words, *more)


def named_again(kept: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """The words for pytest of a search that goes on. Any that are `given` must be those kept.

    Raises ConfigError for others, and if words with a secret, which no file keeps, are not given.
    """
    if given and tuple(map(without_secrets, given)) != tuple(kept):
        problem = "goes on with what was asked before: none of these, or the same ones"
        raise ConfigError(problem, field="--pytest-arg")
    if not given and INSTEAD in " ".join(kept):
        problem = "one of them had a secret, which no file keeps: name all of them again"
        raise ConfigError(problem, field="--pytest-arg")
    return tuple(given or kept)


@dataclass(frozen=True)
class RunEnd:
    """How a run ended: its folder and record if it got so far.

    `exit_code` is None for a run that did not end in time. Where there is no record, `problem` is
    what pytest said last. `stopped` is what kept the run from its case, or the case from a verdict,
    if that was told.
    """

    exit_code: int | None
    record: CaseRecord | None
    folder: Path | None
    problem: str
    seconds: float
    stopped: Problem | None = None


def run_case(arguments: Sequence[str], reports: Path, cwd: Path, timeout_s: float) -> RunEnd:
    """Runs pytest with these arguments, which put its folder below `reports`.

    It is ended, with all that it started, when the time is over or when we are ended. Raises
    InfraError if it cannot be started.
    """
    began = time.monotonic()
    with disk_errors(f"cannot write to {reports}"):
        reports.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        output = (reports / OUTPUT).open("wb")
    told = f"--qnn-problem-file={(reports / PROBLEM).absolute()}"
    command = [sys.executable, "-m", "pytest", told, *arguments]
    process = spawn_guarded(command, cwd=cwd, stdout=output, stderr=output, grace_s=RUN_GRACE_S)
    with output, process:
        exit_code = _watched(process, reports / OUTPUT, timeout_s)
    _without_secrets(reports / OUTPUT)
    return read_run(reports, exit_code, time.monotonic() - began)


def _watched(process: GuardedProcess, output: Path, left_s: float) -> int | None:
    """Waits for the end of a run, and passes on what that waits for.

    To wait for a device has an end of its own, and does not count. None if it takes
    longer otherwise.
    """
    seen, waits = 0, False
    while left_s > 0:
        step_s = min(_LOOK_S, left_s)
        if (code := process.wait(Deadline(step_s))) is not None:
            return code
        with disk_errors(f"cannot read {output}"), output.open("rb") as stream:
            stream.seek(seen)
            said = stream.read(_MOST_OUTPUT_BYTES)
        whole = said[: said.rfind(b"\n") + 1]
        seen += len(whole)
        for line in whole.splitlines():
            waits = line.startswith(_WAITS) and b" for device " in line
            if line.startswith(_WAITS):
                _log.warning(line.decode("utf-8", "replace").partition(" ")[2])
        left_s -= 0 if waits else step_s
    return None


def _without_secrets(output: Path) -> None:
    """What pytest and all that it loads have printed, as it is kept."""
    with disk_errors(f"cannot write {output}"), output.open("r+b") as stream:
        before = max(0, output.stat().st_size - _MOST_OUTPUT_BYTES)
        stream.seek(before)
        content = stream.read(_MOST_OUTPUT_BYTES)
        safe = log_without_secrets(content)
        if safe != content or before:
            stream.seek(0)
            stream.write(safe)
            stream.truncate()


def read_run(reports: Path, exit_code: int | None, seconds: float) -> RunEnd:
    """What a run left below `reports`. Never raises for what it left unfinished."""
    folder = reports / LATEST
    record, found = None, None
    if (folder / JOURNAL).is_file():
        found = folder.resolve()
        records = [*RunFolder(found).contents().cases]
        record = records[-1] if records else None
    problem = "" if record is not None else _problem(reports / OUTPUT, exit_code)
    return RunEnd(exit_code, record, found, problem, seconds, read_problem(reports / PROBLEM))


def finished_run(reports: Path) -> RunEnd | None:
    """A run that had ended when whoever waited for it died; None if it had not."""
    folder = reports / LATEST
    if not (folder / JOURNAL).is_file():
        return None
    try:
        info = RunFolder(folder.resolve()).info()
    except ConfigError:
        return None
    if info.get("exit_code") is None or info.get("problem") is not None:
        return None
    end = read_run(reports, info["exit_code"], 0.0)
    return end if end.record is not None else None


def judge(
    end: RunEnd,
    match: Match,
    good: float | None,
    held: Collection[str] = (),
    changes: Sequence[Output] = (),
) -> Judged:
    """The answer of a run; `good` and `changes` as for `Match.judge`.

    A run without a record is untestable if it said that its versions were the reason, unless it was
    the version of a `held` axis, which is the same everywhere. Raises ConfigError for anything else
    that is wrong with its input, also if a case found that out: it says nothing about any version.
    All else is unknown, also an interrupted run.
    """
    stopped = end.stopped
    if end.record is not None:
        if end.record.cause == "config" and stopped is not None and stopped.about != "versions":
            raise ConfigError(stopped.text)
        return match.judge(end.record, good=good, changes=changes)
    if end.exit_code is None:
        return Judged("unknown", "the run did not end in time")
    if stopped is None:
        if end.exit_code in (_USAGE, _NOTHING_SELECTED):
            raise ConfigError(end.problem)
        return Judged("unknown", end.problem)
    if stopped.about == "versions" and stopped.field not in [f"--{axis}" for axis in held]:
        return Judged("untestable", stopped.text)
    if stopped.about == "lab":
        return Judged("unknown", stopped.text)
    raise ConfigError(stopped.text.replace("--only-case", "--case"))


def _problem(output: Path, exit_code: int | None) -> str:
    """The last line of pytest's output that says what was wrong."""
    try:
        with output.open("rb") as stream:
            stream.seek(max(0, output.stat().st_size - _KEPT_BYTES))
            text = stream.read(_KEPT_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    said = _ERROR_LINE.findall(text)
    lines = [line for line in text.splitlines() if line.strip()]
    last = said[-1] if said else (lines[-1] if lines else "it said nothing")
    plain = "".join(char if char.isprintable() else "?" for char in last)
    return f"{plain[:1000]} (exit code {exit_code})" if not said else plain[:4000]


Discovery = TypeVar("Discovery")
Runner = Callable[[list[str], Path, Path, float], RunEnd]
WAITS_S: Final[tuple[float, ...]] = (0.0, 15.0)
"""How long to wait, after each failure of the lab in a row, before the question is asked again."""


class Watcher:
    """Is told what goes on, and ignores it; the loop does not depend on it."""

    def asked(self, question: Question) -> None:
        """A run begins."""

    def answered(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended."""

    def remark(self, text: str) -> None:
        """Something that a person should know meanwhile."""


class Loop(ABC, Generic[Discovery]):
    """Goes on with what the log of a folder says, which is held."""

    def __init__(
        self,
        folder: SearchFolder[Any],
        watcher: Watcher,
        search: Search[Any, Discovery],
        *,
        run: Runner = run_case,
        stop_at: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.folder, self.watcher, self._search = folder, watcher, search
        self._run_case, self._stop_at, self._sleep = run, stop_at, sleep

    def go_on(self) -> Discovery | Stopped | None:
        """Runs until something is found, the lab stops it, or the time is over (None).

        Raises ConfigError for input that is wrong whatever is asked (nothing is written down as
        an answer then), InfraError if nothing can be written.
        """
        log = self.folder.read()
        if log.entries and not log.is_over:
            self.folder.append(Resumed())
            self._search.resume()
            self._take_up(log.under_way())
        while True:
            step = self._next()
            if isinstance(step, Question):
                self._wait(self._search.evidence.troubles)
                if self._time_left() <= 0:
                    return None
                self._run(step)
                continue
            if not isinstance(step, Stopped) and not self.folder.read().is_over:
                self.folder.append(Concluded(text=str(step), detail=self._concluded()))
            return step

    def _next(self) -> Question | Stopped | Discovery:
        return self._search.next()

    @abstractmethod
    def _begin(self, at: Point, reports: Path) -> RunEnd:
        """Runs the case at a point, with its reports in that folder."""

    @abstractmethod
    def _judged(self, at: Point, end: RunEnd) -> Judged:
        """What a run answers, and what else is to be kept of it. Raises ConfigError."""

    def _concluded(self) -> dict[str, JsonValue]:
        return {}

    def _time_left(self) -> float:
        return math.inf if self._stop_at is None else self._stop_at - time.monotonic()

    def _wait(self, troubles: int) -> None:
        """Gives the lab time to come back, each time more of it."""
        wanted = WAITS_S[min(troubles, len(WAITS_S)) - 1] if troubles else 0.0
        seconds = min(wanted, max(0.0, self._time_left()))
        if seconds > 0:
            self.watcher.remark(f"the lab failed; it is tried again in {seconds:.0f} s")
            self._sleep(seconds)

    def _run(self, question: Question) -> None:
        self.folder.append(question)
        self.watcher.asked(question)
        reports = self.folder.reports_of(self.folder.read())
        self._take(question, self._begin(question.at, reports))

    def _take(self, question: Question, end: RunEnd) -> None:
        judged = self._judged(question.at, end)
        answered = Answered(
            at=question.at,
            answer=judged.answer,
            why=judged.why,
            seconds=round(end.seconds, 3),
            detail=dict(judged.detail),
        )
        if end.folder is not None and (record := end.record) is not None:
            where = {
                "run": end.folder.relative_to(self.folder.path).as_posix(),
                "case": record.case,
                "device": record.device.name if record.device is not None else None,
            }
            answered = answered.model_copy(update=where)
        self.folder.append(answered)
        self._search.answer(question, judged.answer)
        self.watcher.answered(question, judged, end)

    def _take_up(self, question: Question | None) -> None:
        """A run that was under way may have ended although nobody was left to hear of it."""
        reports = self.folder.reports_of(self.folder.read()) if question is not None else None
        end = None if reports is None else finished_run(reports)
        if question is not None and end is not None:
            self.watcher.asked(question)
            self._take(question, end)


def record_of(folder: Path, entry: Answered) -> CaseRecord | None:
    """The record of an answered run; None if there is none, or no longer."""
    run = folder / entry.run if entry.run else None
    if run is None or not (run / JOURNAL).is_file():
        return None
    cases = RunFolder(run).contents().cases
    return next((one for one in cases if one.case == entry.case), None)
