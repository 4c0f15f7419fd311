"""Drives a search: asks it, runs the case, tells it the answer, and writes all of it down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.bisect.answers import Place, Question, Stopped
from harness.bisect.case_run import RunEnd, finished_run, judge, run_case
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.grid_search import GridSearch
from harness.bisect.line import Cost
from harness.bisect.log import Answered, Concluded, Log, Resumed, asked, concluded
from harness.bisect.match import ANY_FAILURE, Judged, Match, parse_match
from harness.bisect.search import Search, free
from harness.bisect.state import BisectFolder
from harness.bisect.task import Task
from harness.errors import ConfigError
from harness.results.record import CaseRecord, final_attempts
from harness.results.rundir import JOURNAL, RunFolder

Runner = Callable[[list[str], Path, Path, float], RunEnd]
_FIRST_RUNS = 2


class Watcher(Protocol):
    """Who is told what goes on; nothing depends on it."""

    def asked(self, question: Question) -> None:
        """A run begins."""

    def answered(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended."""


class Ahead(Protocol):
    """Who fetches what is likely to be wanted next."""

    def want(self, places: tuple[Place, ...]) -> None:
        """These may be next. Returns at once."""


@dataclass
class Bisection:
    """A search, its state on disk, and what its runs are made of.

    `stop_at` is a `time.monotonic()` after which no run begins.
    """

    folder: BisectFolder
    task: Task
    watcher: Watcher
    ahead: Ahead | None = None
    cost: Cost = free
    runner: Runner = run_case
    stop_at: float | None = None
    _turn: int = field(default=0, init=False)
    _told: bool = field(default=False, init=False)
    _without: int = field(default=0, init=False)

    def go_on(self) -> Finding | GridFinding | Stopped | None:
        """Runs until something is found, the lab stops it, or the time is over (None).

        Raises ConfigError for what is wrong with the case, InfraError if nothing can be written.
        """
        log = self.folder.read()
        search = log.search(cost=self.cost)
        match = parse_match(self.task.match) if self.task.match else ANY_FAILURE
        if log.entries and not concluded(log):
            self.folder.append(Resumed())
            search.resume()
            self._told = any(isinstance(entry, Answered) and entry.run for entry in log.entries)
            self._take_up(log, search, match)
        while True:
            step = search.next()
            if isinstance(step, Finding | GridFinding):
                if not concluded(self.folder.read()):
                    self.folder.append(Concluded(text=str(step)))
                return step
            if isinstance(step, Stopped):
                return step
            if self.stop_at is not None and time.monotonic() >= self.stop_at:
                return None
            step = self._reference_first(step, match)
            self._run(step, search, match)

    def _run(self, question: Question, search: Search | GridSearch, match: Match) -> None:
        self.folder.append(asked(question))
        self.watcher.asked(question)
        ahead = search.ahead()
        if self.ahead is not None:
            self.ahead.want(ahead)
        if match.comparison is not None:
            ahead = ()  # compiling and pushing beside it would spoil what is measured
        reports = self.folder.reports_of(self.folder.read())
        arguments = self.task.arguments(question.at, reports, self._devices(), ahead)
        end = self.runner(arguments, reports, self.task.folder, self.task.run_timeout_s)
        self._take(question, end, search, match)

    def _take(
        self, question: Question, end: RunEnd, search: Search | GridSearch, match: Match
    ) -> None:
        judged = judge(end, match, self._good(match, question.at, end.record))
        self._refuse_a_case_that_never_runs(end, judged)
        self._refuse_an_axis_without_effect(end)
        if judged.answer == "unknown":
            self._turn += 1  # the next try goes to the next device that can stand in
        detail: dict[str, object] = {"why": judged.why, "seconds": round(end.seconds, 3)}
        if end.record is not None and end.record.device is not None:
            detail["device"] = end.record.device.name
        run = None
        if end.folder is not None and end.record is not None:
            run = end.folder.relative_to(self.folder.path).as_posix()
        entry = Answered.model_validate(
            {
                "at": question.at,
                "answer": judged.answer,
                "run": run,
                "case": end.record.case if end.record else None,
                "detail": detail,
            }
        )
        self.folder.append(entry)
        search.answer(question, judged.answer)
        self.watcher.answered(question, judged, end)

    def _take_up(self, log: Log, search: Search | GridSearch, match: Match) -> None:
        """A run that was under way may have ended although nobody was left to hear of it."""
        at = log.under_way()
        end = finished_run(self.folder.reports_of(log)) if at is not None else None
        if at is not None and end is not None:
            question = Question(at, search.evidence.runs + 1, "it had ended already")
            self.watcher.asked(question)
            self._take(question, end, search, match)

    def _devices(self) -> list[str]:
        devices = list(self.task.devices)
        turn = self._turn % len(devices)
        return [*devices[turn:], *devices[:turn]]

    def _refuse_a_case_that_never_runs(self, end: RunEnd, judged: Judged) -> None:
        self._told = self._told or end.record is not None
        if not self._told and judged.answer == "untestable":
            self._without += 1
            if self._without >= _FIRST_RUNS:
                raise ConfigError(f"no run got as far as its case: {judged.why}")

    def _refuse_an_axis_without_effect(self, end: RunEnd) -> None:
        if end.record is not None and "ort" in self.task.axes and not end.record.axes.get("ort"):
            problem = 'the case does not use ONNX Runtime: its marker has no engine="ort"'
            raise ConfigError(problem, field="--axis")

    def _reference_first(self, question: Question, match: Match) -> Question:
        """What is compared with the good end's measurements has to wait for them."""
        good = self.task.good
        if not match.needs_good or good is None or question.at == good:
            return question
        if self._good(match, good, None) is not None:
            return question
        return Question(good, question.number, "what others are compared with")

    def _good(self, match: Match, at: Place, record: CaseRecord | None) -> float | None:
        if not match.needs_good:
            return None
        records = [
            known for known_at, known in records_of(self.folder) if known_at == self.task.good
        ]
        if record is not None and at == self.task.good:
            records.append(record)
        return match.reference(records)


def records_of(folder: BisectFolder) -> list[tuple[Place, CaseRecord]]:
    """The record of every answered run that has one, in their order."""
    found = []
    for entry in folder.read().entries:
        if isinstance(entry, Answered) and entry.run is not None:
            record = record_of(folder.path, entry)
            if record is not None:
                found.append((entry.at, record))
    return found


def record_of(folder: Path, entry: Answered) -> CaseRecord | None:
    """The record of an answered run; None if there is none, or no longer."""
    run = folder / entry.run if entry.run else None
    if run is None or not (run / JOURNAL).is_file():
        return None
    records = final_attempts(RunFolder(run).records())
    return next((one for one in records if one.case == entry.case), None)
