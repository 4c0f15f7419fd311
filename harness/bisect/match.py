"""What counts as bad: from the record of a run to its answer (pure)."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from harness.bisect.answers import Answer
from harness.bisect.expression import Comparison, Unmeasured, parse_comparison
from harness.errors import ConfigError
from harness.qnn.codes import same_code
from harness.results.record import CaseRecord, ErrorRecord

_CODE = re.compile(r"0x[0-9a-f]{1,16}|\d{1,20}", re.ASCII | re.IGNORECASE)
_FORMS: Final = (
    "code=1002",
    "symbol=QNN_*_MEM_ALLOC",
    "signature=...",
    "signature=... else good",
    "measurement NAME > 1",
)
_MAX_CHARS: Final = 1000
ELSE_GOOD: Final = " else good"
"""Behind a form that names a failure: whatever else fails counts as good."""


@dataclass(frozen=True)
class Judged:
    """An answer, and why it is that one."""

    answer: Answer
    why: str


@dataclass(frozen=True)
class Match:
    """What counts as bad. Without `failure` and `comparison`, any failure does.

    `others` is what a failure that is not the one asked for comes to.
    """

    text: str = "any failure"
    failure: Callable[[ErrorRecord], bool] | None = None
    comparison: Comparison | None = None
    others: Answer = "untestable"

    @property
    def needs_good(self) -> bool:
        """Whether the run of the good end must come first, since others are compared with it."""
        return self.comparison is not None and self.comparison.needs_good

    def reference(self, good_runs: Iterable[CaseRecord]) -> float | None:
        """What `good` stands for: the median over runs of the good end; None if none measured."""
        values = []
        for record in good_runs:
            try:
                if self.comparison is not None and record.outcome == "passed":
                    values.append(self.comparison.value(record.measurements))
            except Unmeasured:
                continue
        return statistics.median(values) if values else None

    def judge(self, record: CaseRecord, *, good: float | None = None) -> Judged:
        """The answer of a run.

        What the lab or the harness spoilt is `unknown`. What this target cannot do, was skipped or
        could not be set up as wanted (cause "config") is `untestable`. A failure that is another
        one than asked for is `untestable` too: it may hide the one asked for, or stand before it.
        But where older versions are known to fail otherwise, `others` makes it `good`. Failures
        that are known issues count like others. With `needs_good`, `good` is what `reference`
        gave, also for the runs of the good end themselves.
        """
        if record.outcome in ("unsupported", "skipped"):
            return Judged("untestable", record.outcome)
        if record.outcome == "error" or record.cause in ("infra", "harness", "config"):
            if record.cause == "config":
                return Judged("untestable", "it could not be set up")
            return Judged("unknown", f"no verdict: {record.cause}")
        if self.comparison is not None:
            return self._measured(self.comparison, record, good)
        if record.outcome == "passed":
            return Judged("good", "passed")
        if self.failure is None:
            return Judged("bad", record.outcome)
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
        return Judged("bad" if held else "good", f"{value:g}: {comparison.text}")


ANY_FAILURE: Final = Match()


def parse_match(text: str) -> Match:
    """Reads `code=1002` (or 0x3ea, or several with commas), `symbol=`, `signature=`, `measurement`.

    Symbols and signatures are exact, but * stands for anything. With " else good" behind it any
    other failure is good. Raises ConfigError.
    """
    if len(text) > _MAX_CHARS:
        raise ConfigError(f"--match: at most {_MAX_CHARS} characters")
    kind, equals, value = (part.strip() for part in text.partition("="))
    if text.strip().startswith("measurement"):
        comparison = text.strip().removeprefix("measurement").strip().removeprefix("=").strip()
        quoted = len(comparison) > 1 and comparison[0] == comparison[-1] and comparison[0] in "\"'"
        return Match(text, comparison=parse_comparison(comparison[1:-1] if quoted else comparison))
    others: Answer = "untestable"
    if text.rstrip().endswith(ELSE_GOOD):
        others = "good"
        value = text.rstrip().removesuffix(ELSE_GOOD).partition("=")[2].strip()
    if not equals or not value:
        raise ConfigError(f"--match: {text[:80]!r} is none of its forms", choices=_FORMS)
    if kind == "code":
        codes = {_code(part.strip()) for part in value.split(",")}
        return Match(
            text, lambda error: any(same_code(error.code, one) for one in codes), others=others
        )
    if kind == "symbol":
        return Match(text, lambda error: _like(error.symbol, value), others=others)
    if kind == "signature":
        return Match(text, lambda error: _like(error.signature, value), others=others)
    raise ConfigError(f"--match: {text[:80]!r} is none of its forms", choices=_FORMS)


def _code(text: str) -> int:
    if not _CODE.fullmatch(text):
        raise ConfigError(f"--match: {text[:40]!r} is not a code", choices=("1002", "0x3ea"))
    return int(text, 16 if text[:2].lower() == "0x" else 10)


def _like(value: str | None, wanted: str) -> bool:
    # a signature is full of brackets, which fnmatch would take for classes
    return value is not None and fnmatchcase(value, wanted.replace("[", "[[]"))
