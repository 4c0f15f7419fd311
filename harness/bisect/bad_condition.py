"""Conditions for bad: from the record of a run to its answer (pure).

A point is a tuple of versions: one on one axis, a pair on two.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from harness.core.errors import ConfigError
from harness.core.json_record import Part
from harness.diagnosis.error_record import ErrorRecord
from harness.results.op_events import cost_of, dearest
from harness.results.output_drift import NOT_KEPT, Output, steps_of
from harness.results.record import CaseRecord, is_figure

RunAnswer = Literal["good", "bad", "unsure", "untestable", "unknown"]
GoodOrBad = Literal["good", "bad"]
Point = tuple[str, ...]

_MISSES: Final = 100
"""Fewer than one in this many flaky versions may be mistaken for good."""


@dataclass(frozen=True)
class Tally:
    """The number of answers of each kind at a point.

    `unsure` are runs whose measurement counts with that of the last one. One untestable answer
    excludes a point: a version that sometimes cannot be installed is unreliable.
    """

    good: int = 0
    bad: int = 0
    unsure: int = 0
    untestable: int = 0

    @property
    def answers(self) -> int:
        return self.good + self.bad + self.unsure

    def plus(self, answer: RunAnswer) -> Tally:
        """Return the tally with one more answer; `unknown` counts for none."""
        return self if answer == "unknown" else replace(self, **{answer: getattr(self, answer) + 1})

    def settled(self, repeat: int) -> GoodOrBad | None:
        """Return bad if any of `repeat` runs is bad, else good; None if runs are missing."""
        if self.answers < repeat or not (self.good or self.bad):
            return None
        return "bad" if self.bad else "good"


NOTHING: Final = Tally()


def repeats_needed(failed: int, runs: int) -> int:
    """Return the runs needed to miss a failure of rate `failed`/`runs` with less than 1 %.

    At least one of these runs passed, and one failed.
    """
    passed = runs - failed
    repeats = max(1, math.floor(-math.log(_MISSES) / math.log(passed / runs)) - 1)
    while _MISSES * passed**repeats >= runs**repeats:
        repeats += 1
    return repeats


@dataclass(frozen=True)
class Evidence:
    """All answers; their order matters for `troubles` only.

    `runs` counts the answers, `unknown` the runs spoilt by the lab, and `troubles` those of them
    since the last answer or resumption.
    """

    tallies: Mapping[Point, Tally] = field(default_factory=dict)
    runs: int = 0
    unknown: int = 0
    troubles: int = 0

    def plus(self, point: Point, answer: RunAnswer) -> Evidence:
        if answer == "unknown":
            return replace(self, unknown=self.unknown + 1, troubles=self.troubles + 1)
        tallies = {**self.tallies, point: self.of(point).plus(answer)}
        return replace(self, tallies=tallies, runs=self.runs + 1, troubles=0)

    def resumed(self) -> Evidence:
        """Return the evidence after the lab was repaired: `troubles` restart at 0."""
        return replace(self, troubles=0)

    def of(self, point: Point) -> Tally:
        return self.tallies.get(point, NOTHING)

    def untestable(self) -> frozenset[Point]:
        return frozenset(point for point, tally in self.tallies.items() if tally.untestable)


class Question(Part):
    """A run to make; `number` counts the runs that answer, from 1; `why` is for the user."""

    kind: Literal["asked"] = "asked"
    at: Annotated[Point, Field(min_length=1, max_length=2)]
    number: int
    why: str = ""


@dataclass(frozen=True)
class Stopped:
    """The lab failed too often in a row. The search can be resumed once it is repaired."""

    troubles: int
    question: Question


OP: Final = "op "
"""The prefix of the name of an op in a profile."""


class Unmeasured(Exception):
    """A measurement that the comparison needs is missing or invalid."""


def figure(figures: Mapping[str, object], path: str) -> float:
    """Return a measurement by its dotted path, as in `rss_bytes.peak` or `load_us.median`.

    That of a list is its median, which may be named as the last part. `op NAME` is the cost of an
    op, with those fused with it. Raises Unmeasured.
    """
    if path.startswith(OP):
        profile, name = figures.get("profile"), path.removeprefix(OP)
        if (cost := cost_of(profile, name)) is not None:
            return cost
        largest = ", ".join(dearest(profile))
        hint = f"; the largest ops are {largest}" if largest else "; no op was profiled"
        raise Unmeasured(f"op {name} was not profiled{hint}")
    value: object = figures
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif not (isinstance(value, list | tuple) and part == "median"):
            raise Unmeasured(f"{path} was not measured")
    if isinstance(value, list | tuple):
        numbers = [float(number) for number in value if is_figure(number)]
        if not numbers or len(numbers) < len(value):
            raise Unmeasured(f"{path} is not a list of numbers")
        return statistics.median(numbers)
    if not is_figure(value):
        raise Unmeasured(f"{path} is not a number that can be compared")
    return float(value)


_CODE = re.compile(r"0x[0-9a-f]{1,16}|\d{1,20}", re.ASCII | re.IGNORECASE)
_FORMS: Final = (
    "code=1002",
    "symbol=QNN_*_MEM_ALLOC",
    "signature=...",
    "signature=... else good",
    "measurement NAME > 1",
    "drift:STEPS",
    "op-slower:NAME:20%",
)
_OP_SLOWER: Final = re.compile(r"op-slower:(.{1,200}):(\d{1,4}(?:\.\d{1,3})?)%", re.ASCII)
_MAX_CHARS: Final = 1000
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBER: Final = r"\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,2})?"
_COMPARISON: Final = re.compile(
    r"(?P<name>[a-z_]\w*(?:\.\w+)*) *(?P<sign>[<>]=?|[=!]=) *"
    rf"(?:(?P<number>-?{_NUMBER})|(?:(?P<times>{_NUMBER}) *\* *)?good)",
    re.ASCII | re.IGNORECASE,
)
ELSE_GOOD: Final = " else good"
"""The suffix of a form that names a failure: any other failure counts as good."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of a measurement with a number, or with a multiple of its good value."""

    name: str
    sign: str
    number: float
    needs_good: bool = False

    def __str__(self) -> str:
        right = f"{self.number:g}"
        return f"{self.name} {self.sign} {right}{' * good' if self.needs_good else ''}"

    def value(self, figures: Mapping[str, object]) -> float:
        return figure(figures, self.name)

    def is_met(self, value: float, good: float | None = None) -> bool:
        """Return whether a measurement meets the condition. Raises Unmeasured."""
        if self.needs_good and good is None:
            raise Unmeasured("there is no good run to compare with")
        right = self.number * good if self.needs_good and good is not None else self.number
        return _COMPARE[self.sign](value, right)


@dataclass(frozen=True)
class Judged:
    """An answer, its reason, and details for the log."""

    answer: RunAnswer
    why: str
    detail: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """The condition for bad. Without `failure`, `comparison` and `drift_steps`: any failure.

    `others` is the answer for a failure other than the wanted one. `drift_steps`: outputs that
    differ by more than these steps from those of the good end are bad.
    """

    text: str = "any failure"
    failure: Callable[[ErrorRecord], bool] | None = None
    comparison: Comparison | None = None
    others: RunAnswer = "untestable"
    drift_steps: int | None = None

    @property
    def profiles(self) -> bool:
        return self.comparison is not None and self.comparison.name.startswith(OP)

    @property
    def needs_good(self) -> bool:
        compared = self.comparison is not None and self.comparison.needs_good
        return compared or self.drift_steps is not None

    def reference(self, good_runs: Iterable[CaseRecord]) -> float | None:
        """Return the value of `good`: the median over runs of the good end; None without any."""
        values = []
        for record in good_runs:
            with contextlib.suppress(Unmeasured):
                if self.comparison is not None and record.outcome == "passed":
                    values.append(self.comparison.value(record.measurements))
        return statistics.median(values) if values else None

    def can_compare(self, good_runs: Sequence[CaseRecord]) -> bool:
        """Return whether these runs of the good end give a reference for others."""
        if self.drift_steps is not None:
            return any(run.outcome == "passed" for run in good_runs)
        return self.reference(good_runs) is not None

    def judge(
        self,
        record: CaseRecord,
        *,
        good: float | None = None,
        changes: Sequence[Output] = (),
        earlier: Sequence[float] = (),
    ) -> Judged:
        """Return the answer of a run.

        A run spoilt by the lab or the harness is `unknown`. A case that is unsupported, skipped or
        could not be set up (cause "config") is `untestable`. So is a failure other than the wanted
        one, which may hide it or come before it; if older versions are known to fail differently,
        `others` makes it `good`. Failures that are known issues count like others. With
        `needs_good`, `good` is the result of `reference`, also for the runs of the good end; with
        `drift_steps`, `changes` compare its outputs with those of the good end. A measurement is
        the median of this run's and those of `earlier` runs of the same versions.
        """
        if record.outcome in ("unsupported", "skipped"):
            return Judged("untestable", record.outcome)
        if record.outcome == "error" or record.cause in ("infra", "harness", "config"):
            if record.cause == "config":
                message = f": {record.error.message}" if record.error is not None else ""
                return Judged("untestable", f"the case could not be set up{message[:_MAX_CHARS]}")
            return Judged("unknown", f"no verdict: {record.cause}")
        if self.comparison is not None:
            return self._measured(self.comparison, record, good, earlier)
        if self.drift_steps is not None:
            return self._drifted(self.drift_steps, record, changes)
        if record.outcome == "passed":
            return Judged("good", "passed")
        if self.failure is None:
            error = record.error
            failure = error.call or error.headline if error is not None else ""
            return Judged("bad", f"{record.outcome}: {failure}" if failure else record.outcome)
        if record.error is not None and self.failure(record.error):
            return Judged("bad", f"{record.outcome}, {self.text}")
        return Judged(self.others, f"{record.outcome}, but not with {self.text}")

    def _measured(
        self,
        comparison: Comparison,
        record: CaseRecord,
        good: float | None,
        earlier: Sequence[float],
    ) -> Judged:
        if record.outcome != "passed":
            return Judged("untestable", f"{record.outcome}, so nothing was measured")
        try:
            value = statistics.median([*earlier, comparison.value(record.measurements)])
            is_bad = comparison.is_met(value, good)
        except Unmeasured as error:
            return Judged("untestable", str(error))
        return Judged("bad" if is_bad else "good", f"{value:g}: {comparison}")

    def _drifted(self, steps: int, record: CaseRecord, changes: Sequence[Output]) -> Judged:
        if record.outcome != "passed":
            return Judged("untestable", f"{record.outcome}, so no outputs are compared")
        drifting = [output for output in changes if output.drifts]
        beyond = [output for output in drifting if output.beyond(steps)]
        unknown = [output for output in drifting if output.differences[1] is None]
        answer: RunAnswer = "bad" if beyond else "untestable" if unknown else "good"
        for output in beyond or unknown or drifting:
            difference = output.differences[1] or NOT_KEPT
            return Judged(answer, f"{output.context}, output {output.output}: {difference}")
        return Judged(answer, "the outputs equal those of the good end")


ANY_FAILURE: Final = Match()


def parse_match(text: str) -> Match:
    """Parse `code=1002`, `symbol=`, `signature=`, `measurement ...`, `drift:STEPS` or
    `op-slower:NAME:20%`.

    Codes may be hexadecimal, and several separated by commas. Symbols and signatures are exact,
    but * matches anything. With the suffix " else good" any other failure is good. Raises
    ConfigError.
    """
    if len(text) > _MAX_CHARS:
        raise ConfigError(f"--match: at most {_MAX_CHARS} characters")
    steps = steps_of(text.strip())
    if steps is not None:
        return Match(text, drift_steps=steps)
    if (slower := _OP_SLOWER.fullmatch(text.strip())) and float(slower[2]) >= 1:
        comparison = Comparison(f"{OP}{slower[1]}", ">", 1 + float(slower[2]) / 100, True)
        return Match(text, comparison=comparison)
    kind, _, value = (part.strip() for part in text.partition("="))
    if text.strip().startswith("measurement"):
        measured = text.strip().removeprefix("measurement").strip().removeprefix("=").strip()
        return Match(text, comparison=parse_comparison(measured))
    others: RunAnswer = "untestable"
    if text.rstrip().endswith(ELSE_GOOD):
        others = "good"
        value = text.rstrip().removesuffix(ELSE_GOOD).partition("=")[2].strip()
    if value and kind == "code":
        codes = {_code(part.strip()) for part in value.split(",")}
        return Match(text, lambda error: any(map(error.has_code, codes)), others=others)
    if value and kind in ("symbol", "signature"):
        # a signature is full of brackets, which fnmatch would take for classes
        pattern = value.replace("[", "[[]")

        def is_like(error: ErrorRecord) -> bool:
            named = getattr(error, kind)
            if kind == "symbol" and named is None and error.ort is not None:
                named = error.ort.name
            return named is not None and fnmatchcase(named, pattern)

        return Match(text, is_like, others=others)
    raise ConfigError(f"--match: {text[:80]!r} is not a condition", choices=_FORMS)


def _code(text: str) -> int:
    if not _CODE.fullmatch(text):
        raise ConfigError(f"--match: {text[:40]!r} is not an error code", choices=("1002", "0x3ea"))
    return int(text, 16 if text[:2].lower() == "0x" else 10)


def parse_comparison(text: str) -> Comparison:
    """Parse `NAME SIGN NUMBER` or `NAME SIGN NUMBER * good`. Raises ConfigError."""
    match = _COMPARISON.fullmatch(text)
    if match is None or match["name"] == "good":
        problem = f"--match: {text[:80]!r} does not compare a measurement with a number"
        raise ConfigError(problem, choices=("load_us > 500", "load_us > 1.2 * good"))
    number = match["number"] or match["times"] or "1"
    return Comparison(match["name"], match["sign"], float(number), match["number"] is None)
