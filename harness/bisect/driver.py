"""Drives a search: asks it, runs the case, tells it the answer, and writes all of it down."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from harness.bisect.answers import NOTHING, Point, Question, Stopped
from harness.bisect.case_run import RunEnd, finished_run, judge, run_case, task_of
from harness.bisect.findings import AxisFinding, GridFinding
from harness.bisect.folder import BisectFolder
from harness.bisect.log import Answered, Asked, Concluded, Resumed, concluded
from harness.bisect.match import ANY_FAILURE, Comparison, Judged, Unmeasured, parse_match
from harness.bisect.search import free
from harness.bisect.versions import Supply
from harness.errors import ConfigError
from harness.history.noise import needs_scipy
from harness.history.performance import MOST_RUNS, Change
from harness.qnn.axes import AxisName
from harness.results.drift import KEPT, Output, changes
from harness.results.record import CaseRecord
from harness.results.run_folder import JOURNAL, RunFolder

Runner = Callable[[list[str], Path, Path, float], RunEnd]
WAITS_S: Final[tuple[float, ...]] = (0.0, 15.0, 60.0)
"""How long to wait before the same is asked again, after each failure of the lab in a row."""
FEWEST_GOOD: Final = 3
"""Where noise is judged, so many runs of the good end come before those of others.

One proves nothing, and of two nobody knows which was the odd one.
"""


class Watcher:
    """Is told what goes on, and says nothing of it; nothing depends on it."""

    def asked(self, question: Question) -> None:
        """A run begins."""

    def answered(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended."""

    def remark(self, text: str) -> None:
        """Something that a person should know meanwhile."""


class Bisection:
    """Goes on with what the log of a folder says, which is held."""

    def __init__(
        self,
        folder: BisectFolder,
        watcher: Watcher,
        *,
        supply: Supply | None = None,
        run: Runner = run_case,
        stop_at: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Without a `supply`, all runs cost the same, and nothing is fetched beside them.

        `stop_at` is a `time.monotonic()` after which no run begins. Raises ConfigError for a log
        that does not say what to run.
        """
        self.folder = folder
        self.watcher = watcher
        self._supply, self._run_case, self._stop_at, self._sleep = supply, run, stop_at, sleep
        self._log = folder.read()
        self.task = task_of(self._log)
        self._match = parse_match(self.task.match) if self.task.match else ANY_FAILURE
        self._search = self._log.search(cost=supply.cost if supply is not None else free)
        self._judged = self._match.judged if self._log.spec.repeat == "judged" else None
        if self._judged is not None:
            needs_scipy()  # before a run is made in vain
        self._turn = 0
        self._records: dict[tuple[str | None, str | None], CaseRecord | None] = {}
        self._warned: set[AxisName] = set()

    def go_on(self) -> AxisFinding | GridFinding | Stopped | None:
        """Runs until something is found, the lab stops it, or the time is over (None).

        Raises ConfigError for input that is wrong whatever the versions (nothing is written down as
        an answer then), InfraError if nothing can be written.
        """
        self._tell_supply()
        if self._log.entries and not concluded(self._log):
            self.folder.append(Resumed())
            self._search.resume()
            self._take_up()
        while True:
            step = self._search.next()
            if isinstance(step, AxisFinding | GridFinding):
                if not concluded(self.folder.read()):
                    bound = str(self._search.bound)
                    self.folder.append(Concluded(text=str(step), detail={"bound": bound}))
                return step
            if isinstance(step, Stopped):
                return step
            self._wait(self._search.evidence.troubles)
            if self._time_left() <= 0:
                return None
            self._run(self._reference_first(step))

    def _tell_supply(self) -> None:
        if self._supply is not None:
            self._supply.ran(self._search.evidence.tallies)

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
        self.folder.append(Asked(**vars(question)))
        self.watcher.asked(question)
        likely_next = self._search.likely_next()
        if self._supply is not None:
            self._supply.want(likely_next)
        if self._match.comparison is not None:
            likely_next = ()  # compiling and pushing beside it would spoil what is measured
        reports = self.folder.reports_of(self.folder.read())
        arguments = self.task.arguments(question.at, reports, self._devices(), likely_next)
        end = self._run_case(arguments, reports, self.task.folder, self.task.run_timeout_s)
        self._take(question, end)

    def _take(self, question: Question, end: RunEnd) -> None:
        record = end.record
        good_runs = self._good_runs()
        if question.at == self.task.good and record is not None and end.folder is not None:
            good_runs.append((record, end.folder))
        good = self._match.reference(one for one, _ in good_runs)
        held = self.task.held
        judged = judge(end, self._match, good, held, self._changes(end, good_runs))
        if record is not None and self._judged is not None and judged.answer in ("good", "bad"):
            judged = self._beside_noise(question.at, self._judged, record)
        if record is not None:
            self._refuse_an_axis_without_effect(record)
        if judged.answer == "unknown":
            self._turn += 1  # the next try goes to the next device that can stand in
        detail: dict[str, JsonValue] = {"why": judged.why, "seconds": round(end.seconds, 3)}
        if record is not None and record.device is not None:
            detail["device"] = record.device.name
        run = case = None
        if end.folder is not None and record is not None:
            run, case = end.folder.relative_to(self.folder.path).as_posix(), record.case
        self.folder.append(
            Answered(at=question.at, answer=judged.answer, run=run, case=case, detail=detail)
        )
        self._search.answer(question, judged.answer)
        self._tell_supply()
        self.watcher.answered(question, judged, end)

    def _take_up(self) -> None:
        """A run that was under way may have ended although nobody was left to hear of it."""
        at = self._log.under_way()
        end = finished_run(self.folder.reports_of(self._log)) if at is not None else None
        if at is not None and end is not None:
            question = Question(at, self._search.evidence.runs + 1, "it had ended already")
            self.watcher.asked(question)
            self._take(question, end)

    def _devices(self) -> list[str]:
        devices = list(self.task.devices)
        turn = self._turn % len(devices)
        return [*devices[turn:], *devices[:turn]]

    def _refuse_an_axis_without_effect(self, record: CaseRecord) -> None:
        for axis in (*self.task.axes, *self.task.held):
            why = without_effect(axis, record)
            if why is not None and axis in self.task.axes:
                raise ConfigError(why, field="--axis")
            if why is not None and axis not in self._warned:
                self._warned.add(axis)
                self.watcher.remark(f"--{axis} {self.task.held[axis]} has no effect: {why}")

    def _reference_first(self, question: Question) -> Question:
        """What is compared with the good end has to wait for it. Raises ConfigError if in vain."""
        good = self.task.good
        if not self._match.needs_good or good is None or question.at == good:
            return question
        compared = self._match.can_compare([one for one, _ in self._good_runs()])
        if compared and (
            self._judged is None or self._good_suffices(good, question.at, self._judged)
        ):
            return question
        if self._search.evidence.tallies.get(good, NOTHING).untestable:
            problem = f"{' with '.join(good)} told nothing that others could be compared with"
            raise ConfigError(f"{problem}: name another good end", field="--good")
        return Question(good, question.number, "what others are compared with")

    def _sizes(self, comparison: Comparison) -> dict[Point, list[float]]:
        """What was measured at each point, the oldest first."""
        found: dict[Point, list[float]] = {}
        for entry in self.folder.read().answers():
            record = self._record(entry)
            if record is not None and record.outcome == "passed":
                with contextlib.suppress(Unmeasured):
                    size = comparison.size(record.measurements)
                    found.setdefault(entry.at, []).append(size)
        return found

    def _change(self, at: Point, comparison: Comparison, sizes: dict[Point, list[float]]) -> Change:
        """How a point differs from the good side: the good end and what is like it."""
        others = [one for one in sizes if one not in (at, self.task.good)]
        good: list[float] = []
        if self.task.good in sizes:
            end = sizes[self.task.good]
            middle, factor = statistics.median_low(end), comparison.factor
            for one in [one for one in others if self._search.evidence.of(one).good]:
                # what is far off to the other side counts as good, and is not like it
                if middle / factor < statistics.median(sizes[one]) < middle * factor:
                    good += sizes[one]
                    others.remove(one)
            # the judge keeps to what bears out the last one, which must not be the odd one itself
            good += sorted(end, key=lambda size: size == middle)
        return comparison.beside_noise(good, sizes[at], [sizes[one] for one in others])

    def _beside_noise(self, at: Point, comparison: Comparison, record: CaseRecord) -> Judged:
        """The answer of all runs of a point, of which this is the last."""
        value = f"{comparison.value(record.measurements):g}"
        try:
            size = comparison.size(record.measurements)
        except Unmeasured as error:
            return Judged("untestable", str(error))
        if at == self.task.good:
            return Judged("good", f"{value}: what others are compared with")
        sizes = self._sizes(comparison)
        sizes.setdefault(at, []).append(size)
        judged = comparison.answer(self._change(at, comparison, sizes))
        return Judged(judged.answer, f"{value}: {judged.why}")

    def _good_suffices(self, good: Point, at: Point, comparison: Comparison) -> bool:
        """Whether the good end need not be run again before this point is."""
        sizes = self._sizes(comparison)
        of_good, of_new = (len(sizes.get(one, ())) for one in (good, at))
        if of_good >= MOST_RUNS or self._search.evidence.of(good).untestable:
            return True
        if of_good < FEWEST_GOOD or of_new >= MOST_RUNS - 1:
            return False  # the last run of a point is its last chance
        if not of_new:
            return True
        more = self._change(at, comparison, sizes).more_base
        return of_good > of_new if more is None else not more

    def _good_runs(self) -> list[tuple[CaseRecord, Path]]:
        """The runs of the good end so far, with their folders; none where nobody asks for them."""
        if not self._match.needs_good:
            return []
        found = []
        for entry in self.folder.read().answers():
            record = self._record(entry) if entry.at == self.task.good else None
            if record is not None and entry.run:
                found.append((record, self.folder.path / entry.run))
        return found

    def _record(self, entry: Answered) -> CaseRecord | None:
        """The record of an answered run, which is read once: each question asks for all of them."""
        where = entry.run, entry.case
        if where not in self._records:
            self._records[where] = record_of(self.folder.path, entry)
        return self._records[where]

    def _changes(self, end: RunEnd, good_runs: Sequence[tuple[CaseRecord, Path]]) -> list[Output]:
        """The outputs of a run beside those of the good end, where they are what counts.

        Raises ConfigError for a case whose outputs cannot be compared.
        """
        passed = [(one, folder) for one, folder in good_runs if one.outcome == "passed"]
        if self._match.drift_steps is None or end.record is None or end.folder is None:
            return []
        if end.record.outcome != "passed" or not passed:
            return []
        good, beside = passed[0]
        folders = RunFolder(beside), RunFolder(end.folder)

        def read(name: str) -> bytes | None:
            return next(filter(None, (one.kept_output(name) for one in folders)), None)

        found = changes(end.record, good, read)
        if found is not None:
            return found
        if KEPT not in end.record.measurements:
            problem = "--match drift is for a case that keeps outputs, as those of files do"
            raise ConfigError(problem, field="--case")
        problem = "its contexts are not those of the good end: hold what makes them"
        raise ConfigError(problem, field="--compiler")


def without_effect(axis: AxisName, record: CaseRecord) -> str | None:
    """Why the version of an axis makes no difference to a case; None if it may make one.

    What a case takes is known for certain once it passed.
    """
    if axis == "ort" and not record.axes.get("ort"):
        return 'the case does not use ONNX Runtime: its marker has no engine="ort"'
    taken = record.runtime.contexts_by if record.runtime is not None else None
    if axis == "compiler" and taken is None and record.outcome == "passed":
        return "the case takes no contexts of a compiler"
    return None


def record_of(folder: Path, entry: Answered) -> CaseRecord | None:
    """The record of an answered run; None if there is none, or no longer."""
    run = folder / entry.run if entry.run else None
    if run is None or not (run / JOURNAL).is_file():
        return None
    cases = RunFolder(run).contents().cases
    return next((one for one in cases if one.case == entry.case), None)
