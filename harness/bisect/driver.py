"""Drives a search: asks it, runs the case, tells it the answer, and writes all of it down."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from harness.bisect.answers import Place, Question, Stopped
from harness.bisect.case_run import RunEnd, finished_run, judge, run_case
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.grid_search import GridSearch
from harness.bisect.log import Answered, Concluded, Log, Resumed, asked, concluded
from harness.bisect.match import ANY_FAILURE, Judged, Match, parse_match
from harness.bisect.search import Search, free
from harness.bisect.state import BisectFolder
from harness.bisect.task import Axis, Task
from harness.errors import ConfigError
from harness.results.record import CaseRecord, final_attempts
from harness.results.rundir import JOURNAL, RunFolder

Runner = Callable[[list[str], Path, Path, float], RunEnd]
WAITS_S: Final[tuple[float, ...]] = (0.0, 15.0, 60.0)
"""How long to wait before the same is asked again, after each failure of the lab in a row."""


class Watcher(Protocol):
    """Who is told what goes on; nothing depends on it."""

    def asked(self, question: Question) -> None:
        """A run begins."""

    def answered(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended."""

    def remark(self, text: str) -> None:
        """Something that a person should know meanwhile."""


class Pricing(Protocol):
    """What a run costs, in seconds."""

    def __call__(self, at: Place) -> float:
        """That of a run at a place."""

    def ran(self, places: Collection[Place]) -> None:
        """These have been run by now: look again at what is here."""


class Ahead(Protocol):
    """Who fetches what is likely to be wanted next."""

    def want(self, places: tuple[Place, ...]) -> None:
        """These may be next. Returns at once."""


class Free:
    """All runs cost the same."""

    def __call__(self, at: Place) -> float:
        """One second."""
        return free(at)

    def ran(self, places: Collection[Place]) -> None:
        """Makes no difference."""


@dataclass
class Bisection:
    """A search, its state on disk, and what its runs are made of.

    `stop_at` is a `time.monotonic()` after which no run begins. After a failure of the lab the next
    try waits, longer each time (`waits`, the last one for all further).
    """

    folder: BisectFolder
    task: Task
    watcher: Watcher
    ahead: Ahead | None = None
    cost: Pricing = field(default_factory=Free)
    runner: Runner = run_case
    stop_at: float | None = None
    waits: Sequence[float] = WAITS_S
    sleep: Callable[[float], None] = time.sleep
    _turn: int = field(default=0, init=False)
    _warned: set[Axis] = field(default_factory=set, init=False)

    def go_on(self) -> Finding | GridFinding | Stopped | None:
        """Runs until something is found, the lab stops it, or the time is over (None).

        Raises ConfigError for input that is wrong whatever the versions (nothing is written down as
        an answer then), InfraError if nothing can be written.
        """
        log = self.folder.read()
        self.cost.ran(log.evidence().tallies)
        search = log.search(cost=self.cost)
        match = parse_match(self.task.match) if self.task.match else ANY_FAILURE
        if log.entries and not concluded(log):
            self.folder.append(Resumed())
            search.resume()
            self._take_up(log, search, match)
        while True:
            step = search.next()
            if isinstance(step, Finding | GridFinding):
                if not concluded(self.folder.read()):
                    bound = str(search.bound)
                    self.folder.append(Concluded(text=str(step), detail={"bound": bound}))
                return step
            if isinstance(step, Stopped):
                return step
            self._wait(search.evidence.troubles)
            if self._time_left() <= 0:
                return None
            step = self._reference_first(step, match)
            self._run(step, search, match)

    def _time_left(self) -> float:
        return math.inf if self.stop_at is None else self.stop_at - time.monotonic()

    def _wait(self, troubles: int) -> None:
        """Gives the lab time to come back, each time more of it."""
        if not troubles or not self.waits:
            return
        wanted = self.waits[min(troubles, len(self.waits)) - 1]
        seconds = min(wanted, max(0.0, self._time_left()))
        if seconds > 0:
            self.watcher.remark(f"the lab failed; it is tried again in {seconds:.0f} s")
            self.sleep(seconds)

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
        good = self._good(match, question.at, end.record)
        judged = judge(end, match, good, self.task.only_held())
        if end.record is not None:
            self._refuse_an_axis_without_effect(end.record)
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
        self.cost.ran(search.evidence.tallies)
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

    def _refuse_an_axis_without_effect(self, record: CaseRecord) -> None:
        for axis in (*self.task.axes, *self.task.only_held()):
            why = without_effect(axis, record)
            if why is not None and axis in self.task.axes:
                raise ConfigError(why, field="--axis")
            if why is not None and axis not in self._warned:
                self._warned.add(axis)
                self.watcher.remark(f"--{axis} {self.task.held[axis]} has no effect: {why}")

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
        records = [known for _, known in records_of(self.folder, at=self.task.good)]
        if record is not None and at == self.task.good:
            records.append(record)
        return match.reference(records)


def without_effect(axis: Axis, record: CaseRecord) -> str | None:
    """Why the version of an axis makes no difference to a case; None if it may make one.

    What a case takes is known for certain once it passed.
    """
    if axis == "ort" and not record.axes.get("ort"):
        return 'the case does not use ONNX Runtime: its marker has no engine="ort"'
    taken = record.runtime.contexts_by if record.runtime is not None else None
    if axis == "compiler" and taken is None and record.outcome == "passed":
        return "the case takes no contexts of a compiler"
    return None


def records_of(folder: BisectFolder, *, at: Place | None = None) -> list[tuple[Place, CaseRecord]]:
    """The record of every answered run that has one, in their order; only those `at` a place."""
    found = []
    for entry in folder.read().entries:
        if isinstance(entry, Answered) and at in (None, entry.at):
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
