"""Attempts at cases, as far as runs are compared: many of them are held at once."""

from __future__ import annotations

import hashlib
import re
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pydantic import JsonValue

from harness.core.errors import Cause
from harness.core.socs import claim_of, limits_of_simulation
from harness.diagnosis.error import Outcome
from harness.report.summary import server_gone
from harness.results.coverage import (
    LOST_TO,
    VERDICTS,
    Fault,
    Standing,
    fault_of,
    standing_of,
)
from harness.results.drift import KEPT
from harness.results.journal import Damage, LeftOut, lines_in, uncollected
from harness.results.record import NO_CAUSE, CaseRecord, PlacementRecord, is_figure
from harness.results.run_folder import moment_text

FIGURES: Final = ("load_us", "execute_us", "create_us", "run_us", "rss_bytes.peak")
"""The figures that are judged of each case; of a list, its median."""
SURROUNDINGS: Final = "surroundings"
PROFILE: Final = "profile"
COMPARED: Final = (KEPT, SURROUNDINGS, PROFILE)
"""The measurements that a comparison looks at, beside the figures."""
_MOST_SHARED: Final = 10_000
_NOTHING: Final[Mapping[str, JsonValue]] = MappingProxyType({})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one case. Fields that a `CaseRecord` has, too, mean what they mean there.

    `test` is its `question`, which also says what was asked of a file.
    `device` is the name of the device that it ran on, `ort` the ONNX Runtime that it ran with,
    `simulated` the target of that one if it is simulated,
    `run` is the run in which it was made, which may have been merged into others since,
    `failure` the signature of its error, `server` the adb server that the lab lost it to, if one,
    `diagnosis` the id of its diagnosis. `figures` has one number for each of `FIGURES` that was
    measured.
    """

    case: str
    test: str
    placement: PlacementRecord | None
    axes: Mapping[str, JsonValue]
    outcome: Outcome
    cause: Cause | None = None
    device: str | None = None
    simulated: str | None = None
    ort: str | None = None
    files_sha256: str | None = None
    known_issue: str | None = None
    failure: str | None = None
    server: str | None = None
    diagnosis: str | None = None
    breaks_strictness: bool = False
    run: str = ""
    started: str = ""
    attempt: int = 1
    figures: Mapping[str, float] = field(default_factory=dict)
    measurements: Mapping[str, JsonValue] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        record: CaseRecord,
        measured: Collection[str] = COMPARED,
        shared: _Shared | None = None,
    ) -> Attempt:
        """Return what a record says, with its measurements of these names."""
        one = _Shared() if shared is None else shared
        error, runtime, device = record.error, record.runtime, record.device
        diagnosis = error.diagnosis if error is not None else None
        figures = figures_in(record.measurements)
        more = {name: record.measurements[name] for name in measured if name in record.measurements}
        return cls(
            case=one.of(record.case),
            test=one.of(record.question),
            placement=one.of(record.placement),
            axes=one.of(record.axes, repr(record.axes)),
            outcome=record.outcome,
            cause=record.cause,
            device=one.of(device.name) if device is not None else None,
            simulated=device.target if device is not None and device.simulated else None,
            ort=one.of(runtime.ort) if runtime is not None else None,
            files_sha256=one.of(record.files_sha256),
            known_issue=one.of(record.known_issue),
            failure=one.of(error.signature) if error is not None else None,
            server=one.of(server_gone(record)),
            diagnosis=one.of(diagnosis.id) if diagnosis is not None else None,
            breaks_strictness=record.breaks_strictness,
            run=one.of(record.run),
            started=one.of(moment_text(record.started)),
            attempt=record.attempt,
            figures=one.of(figures, repr(figures)),
            measurements=more or _NOTHING,
        )

    @property
    def identity(self) -> tuple[str | None, ...]:
        """What tells it from all other attempts, in whichever journal it stands.

        A merged run numbers attempts anew, so that their numbers are no part of it. Its verdict is:
        a journal that claims another one is of another attempt.
        """
        verdict = self.outcome, self.cause, self.known_issue, self.failure
        return (self.run, self.case, self.started, self.device, *verdict)

    @property
    def asked(self) -> str:
        """What was asked of the file, in words; empty if nothing."""
        function = self.test.partition("[")[0].rpartition("::")[2]
        return function.partition(" (")[2].removesuffix(")")

    @property
    def kin(self) -> str:
        """What it shares with its cases of other versions: the test, where it runs, the backend."""
        if self.placement is None:
            return self.test
        base, _, rest = self.test.partition("[")
        where = f"{self.placement.device}-{self.placement.backend}"
        return f"{base}[{where}{'-' * bool(rest)}{rest or ']'}"

    def axis(self, name: str) -> JsonValue:
        """The value of an axis; of `ort` also the version that came with a user's own files.

        Device and engine are axes, too, although they are fields of their own in a record.
        """
        value = self.axes.get(name)
        if value is not None:
            return value
        return {"device": self.device, "ort": self.ort, "engine": self.engine}.get(name)

    @property
    def engine(self) -> str | None:
        """What executed it; None where no device fits."""
        return self.placement.engine if self.placement is not None else None

    def may_be(self, other: Attempt) -> bool:
        """Whether one of this name, or of other versions, may be this case: not with another
        engine, and not if something else was asked of the file.
        """
        return self.test == other.test and len({self.engine, other.engine} - {None}) < 2

    @property
    def is_bad(self) -> bool:
        """Whether something went wrong, expected or not."""
        return self.outcome not in NO_CAUSE

    @property
    def is_unexplained(self) -> bool:
        """Whether something went wrong that no known issue explains."""
        return self.is_bad and self.standing != "known"

    @property
    def standing(self) -> Standing:
        """What it came to."""
        return standing_of(self.outcome, self.cause, self.known_issue)

    @property
    def fault(self) -> Fault | None:
        """What kept it from a verdict about the target: the lab, the harness or wrong input."""
        return fault_of(self.standing)

    @property
    def has_verdict(self) -> bool:
        """Whether it says something about the target."""
        return self.standing in VERDICTS

    @property
    def signature(self) -> str:
        """What tells its failure from others."""
        return self.outcome if self.failure is None else self.failure


class _Shared(dict[object, Any]):
    """Values that many attempts have, each held once."""

    def of(self, value: _T, key: object = None) -> _T:
        """Return the value that is known by this key, or by itself."""
        if len(self) > _MOST_SHARED:
            self.clear()
        shared: _T = self.setdefault(value if key is None else key, value)
        return shared


def figures_in(measurements: Mapping[str, Any]) -> dict[str, float]:
    """One number for each figure that is judged, as far as it was measured (pure)."""
    values = ((name, sample(measurements, name)) for name in FIGURES)
    return {name: value for name, value in values if value is not None}


def sample(measurements: Mapping[str, Any], figure: str) -> float | None:
    """A figure as one number; None if it is no size (pure)."""
    whole, _, part = figure.partition(".")
    value: Any = measurements.get(whole)
    if part:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, list):
        sizes = [number for number in value if _is_size(number)]
        return float(statistics.median(sizes)) if sizes and len(sizes) == len(value) else None
    return float(value) if _is_size(value) else None


def _is_size(value: Any) -> bool:
    return is_figure(value) and value > 0


@uncollected()
def read_attempts(journal: Path, measured: Collection[str] = ()) -> tuple[list[Attempt], LeftOut]:
    """All attempts of a journal in their order, and its lines that are no records.

    They have the measurements of these names. Raises ConfigError if the journal cannot be read, or
    is wholly of another schema.
    """
    left_out, attempts, shared = LeftOut(), list[Attempt](), _Shared()
    for _, line in lines_in(journal):
        if isinstance(line, CaseRecord):
            attempts.append(Attempt.of(line, measured, shared))
        elif isinstance(line, Damage):
            left_out.add(line)
    return attempts, left_out


def once(attempts: Iterable[Attempt], met: set[str]) -> list[Attempt]:
    """The attempts made in runs that are not `met` yet, by themselves or merged; now they are."""
    fresh = [attempt for attempt in attempts if attempt.run not in met]
    met.update(attempt.run for attempt in fresh)
    return fresh


@dataclass(slots=True)
class EarlierAttempts:
    """All attempts at a case in one run: the last of them, and whether others ended otherwise.

    It `passed` and `failed` so often, `failed_unexpectedly` if a known issue does not expect one of
    these; `bad` is the last that failed. `begun` is when the first of them was. `at` is the place
    of the run among those that are looked at. One on other files than the last does not count.
    """

    last: Attempt
    passed: int = 0
    failed: int = 0
    failed_unexpectedly: bool = False
    failures: tuple[tuple[str, str], ...] = ()
    bad: Attempt | None = None
    at: int = -1
    begun: str = ""

    def add(self, attempt: Attempt) -> None:
        """Takes note of one, in any order."""
        if attempt.files_sha256 != self.last.files_sha256:
            if attempt.attempt < self.last.attempt:
                return
            self.passed, self.failed, self.failures, self.bad = 0, 0, (), None
            self.failed_unexpectedly, self.begun = False, ""
        self.begun = min(self.begun or attempt.started, attempt.started)
        if attempt.attempt >= self.last.attempt:
            self.last = attempt
        if attempt.has_verdict and attempt.is_bad:
            self.failures = (*self.failures, _failure(attempt))
            self.failed += 1
            self.failed_unexpectedly |= attempt.standing == "failed"
            if self.bad is None or attempt.attempt >= self.bad.attempt:
                self.bad = attempt
        elif attempt.has_verdict:
            self.passed += 1

    @property
    def is_flaky(self) -> bool:
        """Whether it both passed and failed."""
        return bool(self.passed and self.failed)

    @property
    def is_bad(self) -> bool | None:
        """Whether it failed; None if it is flaky."""
        return None if self.is_flaky else bool(self.failed)

    @property
    def verdicts(self) -> int:
        """How many of its attempts have one."""
        return self.passed + self.failed


def attempts_by_name(attempts: Iterable[Attempt], at: int = -1) -> dict[str, EarlierAttempts]:
    """The attempts of one run by their cases' names; `at` is its place."""
    found: dict[str, EarlierAttempts] = {}
    for attempt in attempts:
        found.setdefault(attempt.case, EarlierAttempts(attempt, at=at)).add(attempt)
    return found


def finder(run: Mapping[str, EarlierAttempts]) -> Callable[[Attempt], EarlierAttempts | None]:
    """Finds a case of another run in this one: the case of its name, or the only case that differs
    in its versions alone. With another engine it is another case.
    """

    @cache
    def known() -> Mapping[str, list[EarlierAttempts]]:
        """Made when it is first needed: most runs have the same names."""
        found: dict[str, list[EarlierAttempts]] = {}
        for one in run.values():
            found.setdefault(one.last.kin, []).append(one)
        return found

    def find(attempt: Attempt) -> EarlierAttempts | None:
        named = run.get(attempt.case)
        if named is not None:
            return named if named.last.may_be(attempt) else None
        found = [one for one in known().get(attempt.kin, []) if one.last.may_be(attempt)]
        return found[0] if len(found) == 1 else None

    return find


def limits_of(attempts: Iterable[Attempt]) -> str | None:
    """What passes and failures leave open that simulated devices of one kind alone have told."""
    told = [one for one in attempts if one.has_verdict]
    targets = {one.simulated for one in told}
    if len(targets) != 1 or None in targets:
        return None
    codes = [(one.failure or "").split("|")[1:2] for one in told]
    capacity = any(claim_of(int(code)) == "capacity" for code in chain(*codes) if code.isdigit())
    versions = {one.placement.qnn for one in told if one.placement is not None}
    if not capacity and len(versions) < 2:
        return None  # nothing is claimed of versions
    return limits_of_simulation("capacity" if capacity else "version", targets.pop(), versions)


def same_failure(before: Attempt, after: Attempt) -> bool:
    """Whether two attempts failed with one outcome and one signature."""
    return before.is_bad and _failure(before) == _failure(after)


def _failure(attempt: Attempt) -> tuple[str, str]:
    return attempt.outcome, attempt.signature


def cause_of(attempt: Attempt | None) -> str | None:
    """The id of the cause for which a case fails, or has no verdict; None if it does neither, or
    fails as a known issue expects."""
    return cause_id(attempt) if attempt is not None and attempt.is_unexplained else None


def cause_id(attempt: Attempt) -> str:
    """Return the id of what went wrong, whether or not a known issue expects it.

    A test has its own, since failures of many kinds share a signature such as SIGABRT. So has a
    device that the lab lost, whatever the message: numbers in it, and so in names, are masked; or
    the adb server, where all its devices were lost with that.
    """
    if attempt.standing == "lab" and (attempt.server or attempt.device is not None):
        return hashed(f"{LOST_TO['lab']} {attempt.server or attempt.device}")
    test = attempt.test.partition("[")[0]
    return hashed(f"{LOST_TO.get(attempt.standing, attempt.outcome)} {attempt.signature} {test}")


def hashed(text: str) -> str:
    """A text as an id of twelve characters."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


_UNIT: Final = re.compile(r"_(s|ms|us|ns|bytes)(?:\.(?!count\b)\w+)*$", re.ASCII)
# clocks are read to a microsecond, whatever unit is told; bytes and what has no unit are whole
_STEPS: Final[Mapping[str | None, float]] = {"s": 1e-6, "ms": 1e-3}


def unit_of(name: str) -> str | None:
    """The unit of a time or a size of memory, or of a part of one; None of anything else."""
    found = _UNIT.search(name)
    return found[1] if found else None


def known_to(name: str) -> float:
    """The smallest step of a figure of this name, in the figure's own unit."""
    return _STEPS.get(unit_of(name), 1.0)
