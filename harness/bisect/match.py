"""What counts as bad: from the record of a run to its answer (pure).

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

from harness.core.codes import same_code
from harness.core.errors import ConfigError
from harness.diagnosis.error import ErrorRecord, Part
from harness.history.attempts import known_to, unit_of
from harness.history.performance import (
    MOST_RUNS,
    Change,
    interval,
    judge as judge_beside_noise,
)
from harness.results.drift import NOT_KEPT, Output, steps_of
from harness.results.op_events import cost_of, dearest
from harness.results.record import CaseRecord

RunAnswer = Literal["good", "bad", "unsure", "untestable", "unknown"]
GoodOrBad = Literal["good", "bad"]
Repeat = int | Literal["judged"]
"""How often a point is run; `judged`: until its figures are told from noise."""
Point = tuple[str, ...]

_MISSES: Final = 100
"""Of so many versions that fail now and then, fewer than one may be taken for good."""


@dataclass(frozen=True)
class Tally:
    """How often a point gave each answer.

    `unsure` are runs after which a figure could not yet be told from noise.
    One untestable answer is enough to leave a point alone: what cannot be installed now and then
    cannot be trusted to tell anything.
    """

    good: int = 0
    bad: int = 0
    unsure: int = 0
    untestable: int = 0

    @property
    def told(self) -> int:
        return self.good + self.bad + self.unsure

    def plus(self, answer: RunAnswer) -> Tally:
        """Return the tally with one more answer; `unknown` counts for none."""
        return self if answer == "unknown" else replace(self, **{answer: getattr(self, answer) + 1})

    def settled(self, repeat: Repeat) -> GoodOrBad | None:
        """The verdict: bad if any of `repeat` runs is bad, else good; None while runs are due.

        Where noise is judged, one answer is enough.
        """
        if self.good + self.bad < (repeat if isinstance(repeat, int) else 1):
            return None
        return "bad" if self.bad else "good"


NOTHING: Final = Tally()


def repeats_needed(failed: int, runs: int) -> int:
    """Return how many runs overlook a failure that comes in `failed` of `runs` with less than 1 %.

    At least one of these runs passed, and one failed.
    """
    passed = runs - failed
    repeats = max(1, math.floor(-math.log(_MISSES) / math.log(passed / runs)) - 1)
    while _MISSES * passed**repeats >= runs**repeats:
        repeats += 1
    return repeats


@dataclass(frozen=True)
class Evidence:
    """Everything that was answered; the order counts for `troubles` only.

    `runs` counts the answers, `unknown` the runs that the lab spoilt, and `troubles` those of them
    since the last answer, or since somebody went on.
    """

    tallies: Mapping[Point, Tally] = field(default_factory=dict)
    runs: int = 0
    unknown: int = 0
    troubles: int = 0

    def plus(self, at: Point, answer: RunAnswer) -> Evidence:
        """Return the evidence with one more run."""
        if answer == "unknown":
            return replace(self, unknown=self.unknown + 1, troubles=self.troubles + 1)
        tallies = {**self.tallies, at: self.of(at).plus(answer)}
        return replace(self, tallies=tallies, runs=self.runs + 1, troubles=0)

    def resumed(self) -> Evidence:
        """After somebody saw to the lab: its troubles are counted anew."""
        return replace(self, troubles=0)

    def of(self, at: Point) -> Tally:
        """What a point answered."""
        return self.tallies.get(at, NOTHING)

    def untestable(self) -> frozenset[Point]:
        """The points that turned out to be untestable."""
        return frozenset(at for at, tally in self.tallies.items() if tally.untestable)

    def wasted(self) -> int:
        """How many runs went into points that turned out to be untestable.

        Runs whose figures noise hid are not counted: the bound has room for them.
        """
        lost = [tally for tally in self.tallies.values() if tally.untestable]
        return sum(tally.good + tally.bad + tally.untestable for tally in lost)


class Question(Part):
    """A run to be made; `number` counts the runs that answer, from 1; `why` is for a person."""

    kind: Literal["asked"] = "asked"
    at: Annotated[Point, Field(min_length=1, max_length=2)]
    number: int
    why: str = ""


@dataclass(frozen=True)
class Stopped:
    """The lab failed too often in a row. Nothing is lost: see to it, say so, and go on."""

    troubles: int
    question: Question


OP: Final = "op "
"""Stands before the name of an op of a profile."""
_OF_MANY: Final[Mapping[str, Callable[[list[float]], float]]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "count": lambda values: float(len(values)),
}


class Unmeasured(Exception):
    """A figure that the comparison needs is not there, or cannot be computed."""


def figure(figures: Mapping[str, object], path: str) -> float:
    """A figure by its dotted path, as in `rss_bytes.peak` or `load_us.median`.

    Of a list, the last part is one of min, max, mean, median, first, last, count; without one it
    is the median. `op NAME` is what an op took, with what it is fused into. Raises Unmeasured.
    """
    if path.startswith(OP):
        return _of_op(figures, path.removeprefix(OP))
    value: object = figures
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part in _OF_MANY:
            value = _of_many(value, part, path)
        else:
            raise Unmeasured(f"{path} was not measured")
    if isinstance(value, list | tuple):
        value = _of_many(value, "median", path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unmeasured(f"{path} is not a number")
    return _float(value)


def _of_op(figures: Mapping[str, object], name: str) -> float:
    profile = figures.get("profile")
    cost = cost_of(profile, name)
    if cost is None:
        there = ", ".join(dearest(profile))
        some = f": the largest are {there}" if there else ", nor any other"
        raise Unmeasured(f"no op {name} was profiled{some}")
    return cost


def _of_many(values: list[object] | tuple[object, ...], how: str, path: str) -> float:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if not numbers or len(numbers) < len(values):
        raise Unmeasured(f"{path} is not a list of numbers")
    return float(_OF_MANY[how]([_float(number) for number in numbers]))


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise Unmeasured("a number is too large") from error


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
    rf"(?:(?P<number>-?{_NUMBER})|(?:(?P<times>{_NUMBER}) *\* *)?good(?: *\* *(?P<by>{_NUMBER}))?)",
    re.ASCII | re.IGNORECASE,
)
ELSE_GOOD: Final = " else good"
"""Behind a form that names a failure: whatever else fails counts as good."""


@dataclass(frozen=True)
class Comparison:
    """A measurement beside a number, or beside a multiple of what it is when `good`."""

    name: str
    sign: str
    number: float
    needs_good: bool = False

    def __str__(self) -> str:
        right = f"{self.number:g}"
        return f"{self.name} {self.sign} {right}{' * good' if self.needs_good else ''}"

    @property
    def is_of_op(self) -> bool:
        return self.name.startswith(OP)

    @property
    def is_time(self) -> bool:
        """Whether no two runs measure the same: of an op cycles or microseconds are measured."""
        return self.is_of_op or unit_of(self.name) not in (None, "bytes")

    @property
    def limit(self) -> float | None:
        """How many times `good` is too much, or too little, if noise can be judged; else None.

        It can be if one time or size of memory is compared with a multiple of `good`.
        """
        if not self.needs_good or not (self.is_of_op or unit_of(self.name)):
            return None
        too_much = self.sign in (">", ">=") and self.number > 1
        too_little = self.sign in ("<", "<=") and 0 < self.number < 1
        return self.number if too_much or too_little else None

    @property
    def step(self) -> float:
        """The smallest step of the measurement, in its own unit."""
        return 1.0 if self.is_of_op else known_to(self.name)

    @property
    def factor(self) -> float:
        return max(self.limit, 1 / self.limit) if self.limit else 1.0

    def size(self, figures: Mapping[str, object]) -> float:
        """The measurement as noise is judged by. Raises Unmeasured."""
        value = self.value(figures)
        if value <= 0:
            raise Unmeasured(f"{value:g} is neither a time nor a size")
        return value

    def beside_noise(
        self, good: Sequence[float], new: Sequence[float], others: Iterable[Sequence[float]] = ()
    ) -> Change:
        """How sizes of a version differ from those of the good side, each the oldest first.

        Sizes of the `others` tell noise, too.
        """
        base = [good, *others]
        columns = max(map(len, base))
        runs = [[*row, *[None] * (columns - len(row))] for row in base]
        nothing = [[None] * len(new)] * (len(base) - 1)
        names, effect = range(len(base)), self.factor - 1
        steps = [self.step] * len(base)
        told = judge_beside_noise(names, [0] * len(base), runs, [new, *nothing], effect, steps)
        return told.changes[0]

    def answer(self, change: Change) -> Judged:
        """What the answer is for a version that differs so from the good side."""
        why = f"x {change.ratio:.3g} of good ({interval(change)})"
        if change.verdict == "unsure" and change.new_runs < MOST_RUNS:
            return Judged("unsure", why)
        if change.verdict == "unsure":
            return Judged("untestable", f"noise hides it: {why}; {too_noisy(change)}")
        asked_for = "slower" if self.limit == self.factor else "faster"
        return Judged("bad" if change.verdict == asked_for else "good", why)

    def value(self, figures: Mapping[str, object]) -> float:
        """The measurement. Raises Unmeasured."""
        value = figure(figures, self.name)
        if not math.isfinite(value):
            raise Unmeasured(f"{self.name} is not a finite number")
        return value

    def holds(self, figures: Mapping[str, object], good: float | None = None) -> bool:
        """Whether it holds for the figures of a run. Raises Unmeasured."""
        value = self.value(figures)
        if self.needs_good and good is None:
            raise Unmeasured("there is no good run to compare with")
        right = self.number * good if self.needs_good and good is not None else self.number
        return _COMPARE[self.sign](value, right)


def too_noisy(change: Change) -> str:
    """What to say where noise hides whether a figure changed."""
    said = f"to tell less than x {change.tells:.3g}" if change.tells else "to tell it"
    return f"this computer is too noisy {said}"


@dataclass(frozen=True)
class Judged:
    """An answer, why it is that one, and what else the log is to keep of it."""

    answer: RunAnswer
    why: str
    detail: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Match:
    """What counts as bad. Without `failure`, `comparison` and `drift_steps`, any failure does.

    `others` is what a failure other than the one asked for comes to. `drift_steps`: outputs that
    differ by more steps than these from those of the good end are bad.
    """

    text: str = "any failure"
    failure: Callable[[ErrorRecord], bool] | None = None
    comparison: Comparison | None = None
    others: RunAnswer = "untestable"
    drift_steps: int | None = None

    @property
    def judged(self) -> Comparison | None:
        able = self.comparison is not None and self.comparison.limit is not None
        return self.comparison if able else None

    @property
    def profiles(self) -> bool:
        return self.comparison is not None and self.comparison.is_of_op

    @property
    def needs_good(self) -> bool:
        compared = self.comparison is not None and self.comparison.needs_good
        return compared or self.drift_steps is not None

    def too_trusting(self, repeat: Repeat) -> str | None:
        """What to say before a search that believes a single measurement of a time."""
        if self.comparison is None or not self.comparison.is_time or not isinstance(repeat, int):
            return None
        return (
            f"{self.comparison.name} differs from run to run, and one bad answer is believed: a "
            "single slow run can name the wrong version. Without --repeat a multiple of good, such "
            "as `load_us > 1.2 * good`, is judged beside noise"
        )

    def reference(self, good_runs: Iterable[CaseRecord]) -> float | None:
        """What `good` stands for: the median over runs of the good end; None if none measured."""
        values = []
        for record in good_runs:
            with contextlib.suppress(Unmeasured):
                if self.comparison is not None and record.outcome == "passed":
                    values.append(self.comparison.value(record.measurements))
        return statistics.median(values) if values else None

    def can_compare(self, good_runs: Sequence[CaseRecord]) -> bool:
        """Whether these runs of the good end tell what others are compared with."""
        if self.drift_steps is not None:
            return any(one.outcome == "passed" for one in good_runs)
        return self.reference(good_runs) is not None

    def judge(
        self,
        record: CaseRecord,
        *,
        good: float | None = None,
        changes: Sequence[Output] = (),
    ) -> Judged:
        """The answer of a run.

        What the lab or the harness spoilt is `unknown`. What this target cannot do, was skipped or
        could not be set up as wanted (cause "config") is `untestable`. A failure other than the one
        asked for is `untestable`, too: it may hide that one, or come before it. If older versions
        are known to fail otherwise, `others` makes it `good`. Failures that are known issues count
        like others. With `needs_good`, `good` is what `reference` gave, also for the runs of the
        good end themselves; with `drift_steps`, `changes` are its outputs beside those of the good
        end.
        """
        if record.outcome in ("unsupported", "skipped"):
            return Judged("untestable", record.outcome)
        if record.outcome == "error" or record.cause in ("infra", "harness", "config"):
            if record.cause == "config":
                said = f": {record.error.message}" if record.error is not None else ""
                return Judged("untestable", f"it could not be set up{said[:_MAX_CHARS]}")
            return Judged("unknown", f"no verdict: {record.cause}")
        if self.comparison is not None:
            return self._measured(self.comparison, record, good)
        if self.drift_steps is not None:
            return self._drifted(self.drift_steps, record, changes)
        if record.outcome == "passed":
            return Judged("good", "passed")
        if self.failure is None:
            error = record.error
            what = error.call or error.began if error is not None else ""
            return Judged("bad", f"{record.outcome}: {what}" if what else record.outcome)
        if record.error is not None and self.failure(record.error):
            return Judged("bad", f"{record.outcome}, {self.text}")
        return Judged(self.others, f"{record.outcome}, but not with {self.text}")

    def _measured(self, comparison: Comparison, record: CaseRecord, good: float | None) -> Judged:
        if record.outcome != "passed":
            return Judged("untestable", f"{record.outcome}, so nothing was measured")
        try:
            value = comparison.value(record.measurements)
            held = comparison.holds(record.measurements, good)
        except Unmeasured as error:
            return Judged("untestable", str(error))
        return Judged("bad" if held else "good", f"{value:g}: {comparison}")

    def _drifted(self, steps: int, record: CaseRecord, changes: Sequence[Output]) -> Judged:
        if record.outcome != "passed":
            return Judged("untestable", f"{record.outcome}, so no outputs are compared")
        drifting = [one for one in changes if one.drifts]
        beyond = [one for one in drifting if one.beyond(steps)]
        unknown = [one for one in drifting if one.differences[1] is None]
        answer: RunAnswer = "bad" if beyond else "untestable" if unknown else "good"
        for one in beyond or unknown or drifting:
            what = one.differences[1] or NOT_KEPT
            return Judged(answer, f"{one.context}, output {one.name}: {what}")
        return Judged(answer, "the outputs of the good end")


ANY_FAILURE: Final = Match()


def parse_match(text: str) -> Match:
    """Reads `code=1002`, `symbol=`, `signature=`, `measurement ...`, `drift:STEPS` or
    `op-slower:NAME:20%`.

    Codes may be hexadecimal, and several with commas between. Symbols and signatures are exact,
    but * stands for anything. With " else good" behind it any other failure is good. Raises
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
        if len(measured) > 1 and measured[0] == measured[-1] and measured[0] in "\"'":
            measured = measured[1:-1].strip()
        return Match(text, comparison=parse_comparison(measured))
    others: RunAnswer = "untestable"
    if text.rstrip().endswith(ELSE_GOOD):
        others = "good"
        value = text.rstrip().removesuffix(ELSE_GOOD).partition("=")[2].strip()
    if value and kind == "code":
        codes = {_code(part.strip()) for part in value.split(",")}
        return Match(
            text, lambda error: any(same_code(error.code, one) for one in codes), others=others
        )
    if value and kind in ("symbol", "signature"):
        return Match(text, lambda error: _like(getattr(error, kind), value), others=others)
    raise ConfigError(f"--match: {text[:80]!r} is none of its forms", choices=_FORMS)


def _code(text: str) -> int:
    if not _CODE.fullmatch(text):
        raise ConfigError(f"--match: {text[:40]!r} is not a code", choices=("1002", "0x3ea"))
    return int(text, 16 if text[:2].lower() == "0x" else 10)


def _like(value: str | None, wanted: str) -> bool:
    # a signature is full of brackets, which fnmatch would take for classes
    return value is not None and fnmatchcase(value, wanted.replace("[", "[[]"))


def parse_comparison(text: str) -> Comparison:
    """Reads `NAME SIGN NUMBER` or `NAME SIGN NUMBER * good`. Raises ConfigError."""
    found = _COMPARISON.fullmatch(text)
    if found is None or found["name"] == "good" or (found["times"] and found["by"]):
        problem = f"--match: {text[:80]!r} compares no measurement with a number"
        raise ConfigError(problem, choices=("load_us > 500", "load_us > 1.2 * good"))
    number = found["number"] or found["times"] or found["by"] or "1"
    return Comparison(found["name"], found["sign"], float(number), found["number"] is None)
