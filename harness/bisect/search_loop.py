"""The loop of every search: run the case in a separate pytest process and log the answer."""

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

from harness.bisect.bad_condition import Judged, Match, Point, Question, Stopped
from harness.bisect.folder import Answered, Concluded, Resumed, SearchFolder
from harness.bisect.search import Search
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError
from harness.core.files import disk_errors
from harness.core.guarded_process import RUN_GRACE_S, GuardedProcess, spawn_guarded
from harness.core.outgoing_text import REDACTED, log_without_secrets, without_secrets
from harness.core.state_folders import PRIVATE
from harness.history.previous_run import find_failed_run
from harness.plugin.problem_file import Problem, read_problem
from harness.plugin.user_files import is_of_a_file
from harness.results.file_options import file_options_in, pytest_options
from harness.results.output_drift import Output
from harness.results.record import CaseRecord
from harness.results.run_folder import JOURNAL, LATEST, RunFolder

_log = logging.getLogger(__name__)

OUTPUT: Final = "output.txt"
RUN_TIMEOUT_S: Final = 1800.0
_LOOK_S: Final = 1.0
_WAITS: Final = b"warning: waiting"
PROBLEM: Final = "problem.json"
_KEPT_BYTES = 64 * 1024
_MOST_OUTPUT_BYTES: Final = 16 << 20
"""The most output of a run that is kept, from its end."""
_USAGE, _NOTHING_SELECTED = 4, 5
_ERROR_LINE = re.compile(r"^(?:error|ERROR): (.+)$", re.MULTILINE)


def with_earlier_options(case: str, reports: Path, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments for pytest, with the options under which a model file failed before.

    Without the same inputs, expected outputs and limits it would be another test.
    """
    if not is_of_a_file(case) or file_options_in(arguments):
        return tuple(arguments)
    run, options = find_failed_run(reports, case)
    if extra := tuple(pytest_options(options)):
        _log.warning("options taken from %s: %s", run, shlex.join(extra))
    return (*arguments, *extra)


def pytest_arguments_to_resume(stored: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments for pytest of a search that is resumed.

    `arguments`, if there are any, must equal those `stored`. Raises ConfigError if they differ,
    and if some had a secret, which is not stored, and are not given again.
    """
    if arguments and tuple(map(without_secrets, arguments)) != tuple(stored):
        problem = "differ from those of the bisection; give the same arguments, or none"
        raise ConfigError(problem, field="-- PYTEST_ARGS")
    if not arguments and REDACTED in " ".join(stored):
        problem = "one had a secret, which is not stored; give all arguments again"
        raise ConfigError(problem, field="-- PYTEST_ARGS")
    return tuple(arguments or stored)


@dataclass(frozen=True)
class RunEnd:
    """The end of a run, with its folder and record if there are any.

    `exit_code` is None for a run that did not end in time. Without a record, `problem` is the last
    message of pytest. `stopped` is the reported reason why the run did not reach its case, or the
    case no verdict.
    """

    exit_code: int | None
    record: CaseRecord | None
    folder: Path | None
    problem: str
    seconds: float
    stopped: Problem | None = None


def run_case(arguments: Sequence[str], reports: Path, cwd: Path, timeout_s: float) -> RunEnd:
    """Run pytest with these arguments, which put its run folder below `reports`.

    It is ended, with all processes it started, after `timeout_s` or when this process ends. Raises
    InfraError if it cannot be started.
    """
    start = time.monotonic()
    with disk_errors(f"cannot write to {reports}"):
        reports.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        output = (reports / OUTPUT).open("wb")
    problem_option = f"qnn_problem_file={(reports / PROBLEM).absolute()}"
    command = [sys.executable, "-m", "pytest", "-o", problem_option, *arguments]
    process = spawn_guarded(command, cwd=cwd, stdout=output, stderr=output, grace_s=RUN_GRACE_S)
    with output, process:
        exit_code = _wait_for_end(process, reports / OUTPUT, timeout_s)
    _without_secrets(reports / OUTPUT)
    return read_run(reports, exit_code, time.monotonic() - start)


def _wait_for_end(process: GuardedProcess, output: Path, left_s: float) -> int | None:
    """Wait for the end of a run and return its exit code, or None after `left_s`.

    Time that the run waits for a device, which is logged, does not count.
    """
    offset, waits = 0, False
    while left_s > 0:
        step_s = min(_LOOK_S, left_s)
        if (code := process.wait(Deadline(step_s))) is not None:
            return code
        with disk_errors(f"cannot read {output}"), output.open("rb") as stream:
            stream.seek(offset)
            chunk = stream.read(_MOST_OUTPUT_BYTES)
        lines = chunk[: chunk.rfind(b"\n") + 1]
        offset += len(lines)
        for line in lines.splitlines():
            waits = line.startswith(_WAITS) and b" for device " in line
            if line.startswith(_WAITS):
                _log.warning(line.decode("utf-8", "replace").partition(" ")[2])
        left_s -= 0 if waits else step_s
    return None


def _without_secrets(output: Path) -> None:
    """Remove secrets from the output of a run, and all but its end."""
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
    """Read the results of a run below `reports`. Never raises for an unfinished run."""
    folder = reports / LATEST
    record, run_path = None, None
    if (folder / JOURNAL).is_file():
        run_path = folder.resolve()
        records = [*RunFolder(run_path).contents().cases]
        record = records[-1] if records else None
    problem = "" if record is not None else _problem(reports / OUTPUT, exit_code)
    return RunEnd(exit_code, record, run_path, problem, seconds, read_problem(reports / PROBLEM))


def judge(
    end: RunEnd,
    match: Match,
    good: float | None,
    held_axes: Collection[str] = (),
    changes: Sequence[Output] = (),
    earlier: Sequence[float] = (),
) -> Judged:
    """Return the answer of a run; `good`, `changes` and `earlier` as for `Match.judge`.

    A run without a record is untestable if it named its versions as the reason, unless that is the
    version of one of `held_axes`, which is the same in all runs. Raises ConfigError for any other
    wrong input, also if the case found it: it says nothing about any version. Everything else,
    such as an interrupted run, is unknown.
    """
    stopped = end.stopped
    if end.record is not None:
        if end.record.cause == "config" and stopped is not None and stopped.about != "versions":
            raise ConfigError(stopped.text)
        return match.judge(end.record, good=good, changes=changes, earlier=earlier)
    if end.exit_code is None:
        return Judged("unknown", "the run did not end in time")
    if stopped is None:
        if end.exit_code in (_USAGE, _NOTHING_SELECTED):
            raise ConfigError(end.problem)
        return Judged("unknown", end.problem)
    if stopped.about == "versions" and stopped.field not in [f"--{axis}" for axis in held_axes]:
        return Judged("untestable", stopped.text)
    if stopped.about == "lab":
        return Judged("unknown", stopped.text)
    raise ConfigError(stopped.text.replace("qnn_only_case", "--case"))


def _problem(output: Path, exit_code: int | None) -> str:
    try:
        with output.open("rb") as stream:
            stream.seek(max(0, output.stat().st_size - _KEPT_BYTES))
            text = stream.read(_KEPT_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    errors = _ERROR_LINE.findall(text)
    lines = [line for line in text.splitlines() if line.strip()]
    last = errors[-1] if errors else (lines[-1] if lines else "it printed nothing")
    plain = "".join(char if char.isprintable() else "?" for char in last)
    return f"{plain[:1000]} (exit code {exit_code})" if not errors else plain[:4000]


Discovery = TypeVar("Discovery")
Runner = Callable[[list[str], Path, Path, float], RunEnd]
WAITS_S: Final[tuple[float, ...]] = (0.0, 15.0)
"""Pause before the next try, after each failure of the lab in a row."""


class Watcher:
    """An observer of a loop, which ignores everything."""

    def on_question(self, question: Question) -> None:
        """A run begins."""

    def on_answer(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended."""

    def on_note(self, text: str) -> None:
        """Something happened that the user should know."""


class Loop(ABC, Generic[Discovery]):
    """The loop that continues the search in a locked folder from its log."""

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

    def run(self) -> Discovery | Stopped | None:
        """Run until there is a finding, the lab stops it, or the time is over (None).

        Raises ConfigError for input that is wrong at every point (no answer is logged then),
        InfraError if nothing can be written.
        """
        log = self.folder.read()
        if log.entries and not log.is_over:
            self.folder.append(Resumed())
            self._search.resume()
        while True:
            step = self._next()
            if isinstance(step, Question):
                self._wait(self._search.evidence.troubles)
                if self._time_left() <= 0:
                    return None
                self._run(step)
                continue
            if not isinstance(step, Stopped) and not self.folder.read().is_over:
                self.folder.append(Concluded(text=str(step)))
            return step

    def _next(self) -> Question | Stopped | Discovery:
        return self._search.next()

    @abstractmethod
    def _run_at(self, point: Point, reports: Path) -> RunEnd:
        """Run the case at a point, with its reports in that folder."""

    @abstractmethod
    def _judge(self, point: Point, end: RunEnd) -> Judged:
        """Return the answer of a run, and details to log. Raises ConfigError."""

    def _time_left(self) -> float:
        return math.inf if self._stop_at is None else self._stop_at - time.monotonic()

    def _wait(self, troubles: int) -> None:
        """Give the lab time to recover, longer after each failure."""
        pause_s = WAITS_S[min(troubles, len(WAITS_S)) - 1] if troubles else 0.0
        seconds = min(pause_s, max(0.0, self._time_left()))
        if seconds > 0:
            self.watcher.on_note(f"the lab failed; trying again in {seconds:.0f} s")
            self._sleep(seconds)

    def _run(self, question: Question) -> None:
        self.folder.append(question)
        self.watcher.on_question(question)
        reports = self.folder.reports_of(self.folder.read())
        end = self._run_at(question.at, reports)
        judged = self._judge(question.at, end)
        entry = Answered(
            at=question.at,
            answer=judged.answer,
            why=judged.why,
            seconds=round(end.seconds, 3),
            detail=dict(judged.detail),
        )
        if end.folder is not None and (record := end.record) is not None:
            location = {
                "run": end.folder.relative_to(self.folder.path).as_posix(),
                "case": record.case,
                "device": record.device.name if record.device is not None else None,
            }
            entry = entry.model_copy(update=location)
        self.folder.append(entry)
        self._search.answer(question, judged.answer)
        self.watcher.on_answer(question, judged, end)


def record_of(folder: Path, entry: Answered) -> CaseRecord | None:
    """Return the record of an answered run; None if there is none, or no longer."""
    run = folder / entry.run if entry.run else None
    if run is None or not (run / JOURNAL).is_file():
        return None
    cases = RunFolder(run).contents().cases
    return next((record for record in cases if record.case == entry.case), None)
