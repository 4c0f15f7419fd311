"""Attempts at cases, in the compact form in which runs are compared."""

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
from harness.core.matrix_axes import SEARCHED, VERSIONS
from harness.core.outgoing_text import shortened
from harness.core.socs import claim_of, limits_of_simulation
from harness.diagnosis.error_record import MAX_SIGNATURE_CHARS, Outcome
from harness.report.summary import server_gone
from harness.results.case_names import function_of, named, split_node_id
from harness.results.coverage import LOST_TO, VERDICTS, Ended
from harness.results.journal import Damage, SkippedLines, lines_in, without_gc
from harness.results.output_drift import KEPT
from harness.results.record import CaseRecord, PlacementRecord, is_figure
from harness.results.run_folder import moment_text

FIGURES: Final = ("load_us", "execute_us", "create_us", "run_us", "rss_bytes.peak")
"""The figures of each case that are judged; a list is judged by its median."""
SURROUNDINGS: Final = "surroundings"
PROFILE: Final = "profile"
COMPARED: Final = (KEPT, SURROUNDINGS, PROFILE)
"""The measurements that are compared, besides the figures."""
_MOST_SHARED: Final = 10_000
_NOTHING: Final[Mapping[str, JsonValue]] = MappingProxyType({})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Attempt(Ended):
    """One attempt at one case. Fields that a `CaseRecord` has, too, mean the same here.

    `test` is its `question`, which includes the options given for a user's file. `device` is the
    name of the device that it ran on, `simulated` that device's target if it is simulated, `ort`
    the version of ONNX Runtime. `run` is the run that made the attempt, even if it was merged into
    another one since. `failure` is the signature of its error, `message` the error in a line,
    which the history does not store, `server` the adb server whose failure cost it its verdict,
    `diagnosis` the id of its diagnosis. `figures` has a number for
    each of `FIGURES` that was measured.
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
    message: str = ""
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
        cls, record: CaseRecord, measured: Collection[str] = COMPARED, shared: _Shared | None = None
    ) -> Attempt:
        """Make an attempt of a record, with the measurements named by `measured`."""
        values = _Shared() if shared is None else shared
        error, runtime, device = record.error, record.runtime, record.device
        diagnosis = error.diagnosis if error is not None else None
        sizes = ((name, sample(record.measurements, name)) for name in FIGURES)
        figures = {name: size for name, size in sizes if size is not None}
        more = {name: record.measurements[name] for name in measured if name in record.measurements}
        return cls(
            case=values.of(record.case),
            test=values.of(record.question),
            placement=values.of(record.placement),
            axes=values.of(record.axes, repr(record.axes)),
            outcome=record.outcome,
            cause=record.cause,
            device=values.of(device.name) if device is not None else None,
            simulated=device.target if device is not None and device.simulated else None,
            ort=values.of(runtime.ort) if runtime is not None else None,
            files_sha256=values.of(record.files_sha256),
            known_issue=values.of(record.known_issue),
            failure=values.of(error.signature) if error is not None else None,
            message=values.of(shortened(error.summary, MAX_SIGNATURE_CHARS)) if error else "",
            server=values.of(server_gone(record)),
            diagnosis=values.of(diagnosis.id) if diagnosis is not None else None,
            breaks_strictness=record.breaks_strictness,
            run=values.of(record.run),
            started=values.of(moment_text(record.started)),
            attempt=record.attempt,
            figures=values.of(figures, repr(figures)),
            measurements=more or _NOTHING,
        )

    @property
    def identity(self) -> tuple[str | None, ...]:
        """The key of this attempt, which is the same in every journal that has it.

        It has no attempt number, since merging runs renumbers attempts. It has the verdict: a
        record with another verdict is another attempt.
        """
        verdict = self.outcome, self.cause, self.known_issue, self.failure
        return (self.run, self.case, self.started, self.device, *verdict)

    @property
    def file_options(self) -> str:
        """The options given for the user's file, in words; empty if there are none."""
        return function_of(self.test).partition(" (")[2].removesuffix(")")

    @property
    def case_group(self) -> str:
        """The key shared by cases that differ only in versions."""
        return self._group(VERSIONS)

    @property
    def power_group(self) -> str:
        """The key shared by cases that differ only in versions and power profiles."""
        return self._group(SEARCHED)

    def _group(self, axes: Iterable[str]) -> str:
        if self.placement is None:
            return self.test
        base, parameters = split_node_id(self.test)
        place = self.placement.model_copy(update=dict.fromkeys(axes))
        return named(base, f"{place}-{parameters}" if parameters else str(place))

    def axis(self, name: str) -> JsonValue:
        """Return the value of an axis; for `ort`, also a version that came with a user's files.

        Device and engine are axes, too, although records have fields for them.
        """
        value = self.axes.get(name)
        if value is not None:
            return value
        return {"device": self.device, "ort": self.ort, "engine": self.engine}.get(name)

    @property
    def power(self) -> str | None:
        """The power profile that it voted for, with refused votes; None without a vote."""
        surroundings = self.measurements.get(SURROUNDINGS)
        power = surroundings.get("power") if isinstance(surroundings, Mapping) else None
        placed = self.placement.power if self.placement is not None else None
        return power if isinstance(power, str) else placed

    @property
    def engine(self) -> str | None:
        """The engine that executed it; None where no device fits."""
        return self.placement.engine if self.placement is not None else None

    def may_be(self, other: Attempt) -> bool:
        """Return whether both can be the same case: with the same test and no other engine."""
        return self.test == other.test and len({self.engine, other.engine} - {None}) < 2

    @property
    def has_verdict(self) -> bool:
        return self.standing in VERDICTS

    @property
    def signature(self) -> str:
        """The signature of its failure; its outcome if it has none."""
        return self.outcome if self.failure is None else self.failure


class _Shared(dict[object, Any]):
    """Values that many attempts share, each stored once."""

    def of(self, value: _T, key: object = None) -> _T:
        """Return the shared value of this key, or equal to this one."""
        if len(self) > _MOST_SHARED:
            self.clear()
        shared: _T = self.setdefault(value if key is None else key, value)
        return shared


def sample(measurements: Mapping[str, Any], figure: str) -> float | None:
    """Return a figure as one number; None if it is no size (pure)."""
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


@without_gc()
def read_attempts(
    journal: Path, measured: Collection[str] = ()
) -> tuple[list[Attempt], SkippedLines]:
    """Read all attempts of a journal, in order, and count its lines that are no records.

    Attempts keep the measurements named by `measured`. Raises ConfigError if the journal cannot be
    read, or all of it has another schema.
    """
    left_out, attempts, shared = SkippedLines(), list[Attempt](), _Shared()
    for _, line in lines_in(journal):
        if isinstance(line, CaseRecord):
            attempts.append(Attempt.of(line, measured, shared))
        elif isinstance(line, Damage):
            left_out.add(line)
    return attempts, left_out


def skip_seen_runs(attempts: Iterable[Attempt], seen_runs: set[str]) -> list[Attempt]:
    """Return the attempts of runs that are not in `seen_runs`, and add these runs to it."""
    fresh = [attempt for attempt in attempts if attempt.run not in seen_runs]
    seen_runs.update(attempt.run for attempt in fresh)
    return fresh


@dataclass(slots=True)
class CaseAttempts:
    """All attempts at a case in one run: the last of them, and counts of verdicts.

    `passed` and `failed` count verdicts; `failed_unexpectedly` is true if no known issue expects
    one of the failures, `bad` is the last failure. `started` is the start of the first attempt,
    `run_index` the index of the run among those that are examined. Attempts with other files than
    the last one do not count.
    """

    last: Attempt
    passed: int = 0
    failed: int = 0
    failed_unexpectedly: bool = False
    failures: tuple[tuple[str, str], ...] = ()
    bad: Attempt | None = None
    run_index: int = -1
    started: str = ""

    def add(self, attempt: Attempt) -> None:
        """Add an attempt; attempts may come in any order."""
        if attempt.files_sha256 != self.last.files_sha256:
            if attempt.attempt < self.last.attempt:
                return
            self.passed, self.failed, self.failures, self.bad = 0, 0, (), None
            self.failed_unexpectedly, self.started = False, ""
        self.started = min(self.started or attempt.started, attempt.started)
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
        return bool(self.passed and self.failed)

    @property
    def is_bad(self) -> bool | None:
        """True if it failed; None if it is flaky."""
        return None if self.is_flaky else bool(self.failed)

    @property
    def verdicts(self) -> int:
        return self.passed + self.failed


def attempts_by_name(attempts: Iterable[Attempt], run_index: int = -1) -> dict[str, CaseAttempts]:
    """Group the attempts of one run by the names of their cases."""
    by_name: dict[str, CaseAttempts] = {}
    for attempt in attempts:
        by_name.setdefault(attempt.case, CaseAttempts(attempt, run_index=run_index)).add(attempt)
    return by_name


def finder(run: Mapping[str, CaseAttempts]) -> Callable[[Attempt], CaseAttempts | None]:
    """Return a function that finds a case of another run in this run.

    It finds the case of the same name, or the only case that differs in versions alone. A case
    with another engine is another case.
    """

    @cache
    def known() -> Mapping[str, list[CaseAttempts]]:
        """Cases by their group; built on demand, since most runs have the same names."""
        by_group: dict[str, list[CaseAttempts]] = {}
        for case in run.values():
            by_group.setdefault(case.last.case_group, []).append(case)
        return by_group

    def find(attempt: Attempt) -> CaseAttempts | None:
        named = run.get(attempt.case)
        if named is not None:
            return named if named.last.may_be(attempt) else None
        similar = [
            case for case in known().get(attempt.case_group, []) if case.last.may_be(attempt)
        ]
        return similar[0] if len(similar) == 1 else None

    return find


def limits_of(attempts: Iterable[Attempt]) -> str | None:
    """Return what verdicts of simulated devices of one kind leave open; None for all others."""
    judged = [attempt for attempt in attempts if attempt.has_verdict]
    targets = {attempt.simulated for attempt in judged}
    if len(targets) != 1 or None in targets:
        return None
    codes = [(attempt.failure or "").split("|")[1:2] for attempt in judged]
    capacity = any(claim_of(int(code)) == "capacity" for code in chain(*codes) if code.isdigit())
    versions = {attempt.placement.qnn for attempt in judged if attempt.placement is not None}
    if not capacity and len(versions) < 2:
        return None  # nothing is claimed of versions
    return limits_of_simulation("capacity" if capacity else "version", targets.pop(), versions)


def same_failure(before: Attempt, after: Attempt) -> bool:
    """Return whether both attempts failed with the same outcome and signature."""
    return before.is_bad and _failure(before) == _failure(after)


def _failure(attempt: Attempt) -> tuple[str, str]:
    return attempt.outcome, attempt.signature


def cause_of(attempt: Attempt | None) -> str | None:
    """Return the id of the cause of a failure or a lost verdict.

    None if the case passes, or fails as a known issue expects.
    """
    return cause_id(attempt) if attempt is not None and attempt.is_unexpected else None


def cause_id(attempt: Attempt) -> str:
    """Return the id of what went wrong, whether or not a known issue expects it.

    Each test has its own, since unrelated failures share signatures such as SIGABRT. So has each
    device that the lab lost, whatever the message, since signatures mask the numbers in device
    names; and each adb server that took all its devices with it.
    """
    if attempt.standing == "lab" and (attempt.server or attempt.device is not None):
        return short_hash(f"{LOST_TO['lab']} {attempt.server or attempt.device}")
    test = attempt.test.partition("[")[0]
    return short_hash(
        f"{LOST_TO.get(attempt.standing, attempt.outcome)} {attempt.signature} {test}"
    )


def short_hash(text: str) -> str:
    """Return an id of twelve characters for a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


_UNIT: Final = re.compile(r"_(s|ms|us|ns|bytes)(?:\.(?!count\b)\w+)*$", re.ASCII)
# clocks are read to a microsecond, whatever the unit; bytes and figures without a unit are whole
_STEPS: Final[Mapping[str | None, float]] = {"s": 1e-6, "ms": 1e-3}


def unit_of(name: str) -> str | None:
    """Return the unit of a time, a size of memory, or a part of one; None for other figures."""
    match = _UNIT.search(name)
    return match[1] if match else None


def resolution_of(name: str) -> float:
    """Return the smallest step of a figure of this name, in the figure's own unit."""
    return _STEPS.get(unit_of(name), 1.0)
