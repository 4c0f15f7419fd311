"""Runs a case with the versions that a search asks for, and says what each run answers."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue

from harness.answers.history.performance import MOST_RUNS, Change
from harness.ground.errors import ConfigError
from harness.ground.facts.axes import AxisName
from harness.search.bisect.answers import NOTHING, Point, Question, Stopped
from harness.search.bisect.axis_search import AxisSearch
from harness.search.bisect.case_run import RunEnd, judge
from harness.search.bisect.corner_search import CornerSearch
from harness.search.bisect.figures import Unmeasured
from harness.search.bisect.findings import Finding
from harness.search.bisect.folder import BisectFolder
from harness.search.bisect.log import Answered, BisectLog
from harness.search.bisect.loop import Loop, Watcher, record_of
from harness.search.bisect.match import ANY_FAILURE, Comparison, Judged, parse_match
from harness.search.bisect.search import AxisSpec, Search
from harness.search.bisect.task import Task
from harness.verdict.results.drift import KEPT, Output, changes
from harness.verdict.results.record import CaseRecord
from harness.verdict.results.run_folder import RunFolder

FEWEST_GOOD: Final = 3
"""If noise is judged, so many runs of the good end come before other runs.

One proves nothing, and of two nobody knows which was the odd one.
"""


def search_of(log: BisectLog) -> Search[Any, Finding]:
    """Return the search as it stood at the end of a log."""
    spec, evidence = log.spec.search, log.evidence()
    if isinstance(spec, AxisSpec):
        return AxisSearch(spec, evidence)
    return CornerSearch(spec, evidence)


class Bisection(Loop[Finding]):
    """The loop that runs a case with versions."""

    def __init__(self, folder: BisectFolder, watcher: Watcher, **more: Any) -> None:
        """`more` is as for `Loop`."""
        log = folder.read()
        self.task: Task = log.spec
        super().__init__(folder, watcher, search_of(log), **more)
        self._good = self.task.search.reference
        self._match = parse_match(self.task.match) if self.task.match else ANY_FAILURE
        self._noisy = self._match.judged if self.task.search.repeat == "judged" else None
        self._turn = 0
        self._records: dict[tuple[str | None, str | None], CaseRecord | None] = {}
        self._warned: set[AxisName] = set()

    def _next(self) -> Question | Stopped | Finding:
        step = super()._next()
        return self._reference_first(step) if isinstance(step, Question) else step

    def _begin(self, at: Point, reports: Path) -> RunEnd:
        arguments = self.task.arguments(at, reports, self._devices())
        return self._run_case(arguments, reports, self.task.folder, self.task.run_timeout_s)

    def _judged(self, at: Point, end: RunEnd) -> Judged:
        record = end.record
        good_runs = self._good_runs()
        if at == self._good and record is not None and end.folder is not None:
            good_runs.append((record, end.folder))
        good = self._match.reference(one for one, _ in good_runs)
        judged = judge(end, self._match, good, self.task.held, self._changes(end, good_runs))
        if record is not None and self._noisy is not None and judged.answer in ("good", "bad"):
            judged = self._beside_noise(at, self._noisy, record)
        if record is not None:
            self._refuse_an_axis_without_effect(record)
        if judged.answer == "unknown":
            self._turn += 1  # the next try goes to the next device that can stand in
        return judged

    def _concluded(self) -> dict[str, JsonValue]:
        return {"bound": str(self._search.spec.bound())}

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
        """Runs that are compared with the good end wait for it. Raises ConfigError if in vain."""
        good = self._good
        if not self._match.needs_good or good is None or question.at == good:
            return question
        compared = self._match.can_compare([one for one, _ in self._good_runs()])
        noisy = self._noisy
        if compared and (noisy is None or self._good_suffices(good, question.at, noisy)):
            return question
        if self._search.evidence.tallies.get(good, NOTHING).untestable:
            problem = f"{' with '.join(good)} told nothing that others could be compared with"
            raise ConfigError(f"{problem}: name another good end", field="--good")
        return Question(at=good, number=question.number, why="what others are compared with")

    def _sizes(self, comparison: Comparison) -> dict[Point, list[float]]:
        """What was measured at each point, the oldest first."""
        found: dict[Point, list[float]] = {}
        for entry, record in self._ran():
            if record.outcome == "passed":
                with contextlib.suppress(Unmeasured):
                    size = comparison.size(record.measurements)
                    found.setdefault(entry.at, []).append(size)
        return found

    def _change(self, at: Point, comparison: Comparison, sizes: dict[Point, list[float]]) -> Change:
        """How a point differs from the good side, which is the good end and all that is like it."""
        others = [one for one in sizes if one not in (at, self._good)]
        good: list[float] = []
        if self._good in sizes:
            end = sizes[self._good]
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
        if at == self._good:
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
        if not self._match.needs_good:
            return []
        ran = ((one, entry.run) for entry, one in self._ran() if entry.at == self._good)
        return [(record, self.folder.path / run) for record, run in ran if run]

    def _ran(self) -> Iterator[tuple[Answered, CaseRecord]]:
        """The runs that left a record, which is read once: each question asks for all of them."""
        for entry in self.folder.read().answers():
            where = entry.run, entry.case
            if where not in self._records:
                self._records[where] = record_of(self.folder.path, entry)
            record = self._records[where]
            if record is not None:
                yield entry, record

    def _changes(self, end: RunEnd, good_runs: Sequence[tuple[CaseRecord, Path]]) -> list[Output]:
        """The outputs of a run beside those of the good end, if outputs are what counts.

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
