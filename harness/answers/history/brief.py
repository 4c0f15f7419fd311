"""The part of a record that comparing needs: many of them are held at once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import JsonValue

from harness.ground.errors import Cause
from harness.verdict.failure.error import Outcome
from harness.verdict.results.coverage import VERDICTS, Fault, Standing, fault_of, standing_of
from harness.verdict.results.drift import KEPT
from harness.verdict.results.held import HeldRecords, OpenJournal
from harness.verdict.results.journal import Damage, LeftOut, said_in, uncollected
from harness.verdict.results.record import NO_CAUSE, CaseRecord, PlacementRecord

FIGURES: Final = ("load_us", "execute_us", "create_us", "run_us", "rss_bytes.peak")
"""The figures that are judged of each case; of a list, its median."""
SURROUNDINGS: Final = "surroundings"
PROFILE: Final = "profile"
COMPARED: Final = frozenset(
    {KEPT, SURROUNDINGS, PROFILE, *(one.partition(".")[0] for one in FIGURES)}
)
"""The measurements that a comparison looks at."""


@dataclass(frozen=True, slots=True)
class DeviceName:
    """The name of a device."""

    name: str


class RecordSource(Protocol):
    """Gives what is not held of the case at a place."""

    def axes(self, place: int, case: str) -> dict[str, JsonValue]: ...
    def measured(self, place: int, case: str, name: str) -> JsonValue: ...


@dataclass(frozen=True, slots=True)
class WholeRecord:
    """A record that is held whole."""

    record: CaseRecord

    def axes(self, place: int, case: str) -> dict[str, JsonValue]:
        """Its axes."""
        return self.record.axes

    def measured(self, place: int, case: str, name: str) -> JsonValue:
        """What it measured by that name."""
        return self.record.measurements.get(name)


@dataclass(frozen=True, slots=True)
class HeldFigures:
    """The figures of an attempt as a database holds them, read when they are asked for."""

    said: str

    def axes(self, place: int, case: str) -> dict[str, JsonValue]:
        """None: they are held beside it."""
        return {}

    def measured(self, place: int, case: str, name: str) -> JsonValue:
        """The number that stands for what it measured by that name."""
        return _figures(self.said).get(name)


@lru_cache(1000)
def _figures(said: str) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = json.loads(said)
    return found


@dataclass(frozen=True, slots=True)
class Fate:
    """How an attempt ended, and where: many have one in common.

    The fields mean what they mean in a `CaseRecord`. `failure` is the signature of its error,
    `diagnosis` the id of that.
    """

    outcome: Outcome
    cause: Cause | None = None
    device: DeviceName | None = None
    ort: str | None = None
    known_issue: str | None = None
    failure: str | None = None
    diagnosis: str | None = None
    breaks_strictness: bool = False
    standing: Standing = field(init=False, compare=False)
    """What it came to."""

    def __post_init__(self) -> None:
        """Made once: it is asked for again and again."""
        told = standing_of(self.outcome, self.cause, self.known_issue)
        object.__setattr__(self, "standing", told)

    @classmethod
    def of(cls, record: CaseRecord) -> Fate:
        """That of a whole record."""
        error, device = record.error, record.device
        return _shared(
            record.outcome,
            record.cause,
            DeviceName(device.name) if device is not None else None,
            record.runtime.ort if record.runtime is not None else None,
            record.known_issue,
            error.signature if error is not None else None,
            error.diagnosis.id if error is not None and error.diagnosis is not None else None,
            record.breaks_strictness,
        )


@lru_cache(1000)
def _shared(*fields: Any) -> Fate:
    return Fate(*fields)


@dataclass(frozen=True, slots=True)
class Brief:
    """One attempt at one case. Fields that a `CaseRecord` has, too, mean what they mean there."""

    case: str
    test: str
    placement: PlacementRecord | None
    held_axes: dict[str, JsonValue] | None
    fate: Fate
    started: str
    attempt: int = 1
    source: RecordSource | None = None
    """Where its measurements are, and its axes if they are not held; None if nowhere."""
    place: int = 0

    @classmethod
    def of(cls, record: CaseRecord) -> Brief:
        """The brief of a whole record."""
        return cls(
            record.case,
            record.test,
            record.placement,
            record.axes,
            Fate.of(record),
            moment_text(record.started),
            record.attempt,
            WholeRecord(record) if record.measurements else None,
        )

    @property
    def kin(self) -> str:
        """What it shares with its cases of other versions: the test, where it runs, the backend."""
        if self.placement is None:
            return self.test
        base, _, rest = self.test.partition("[")
        where = f"{self.placement.device}-{self.placement.backend}"
        return f"{base}[{where}{'-' * bool(rest)}{rest or ']'}"

    @property
    def axes(self) -> dict[str, JsonValue]:
        """The point of its matrix."""
        if self.held_axes is not None or self.source is None:
            return self.held_axes or {}
        return self.source.axes(self.place, self.case)

    def measured(self, name: str) -> JsonValue:
        """What it measured by that name, as far as comparing needs it; None if nothing."""
        if self.source is None:
            return None
        return self.source.measured(self.place, self.case, name)

    def axis(self, name: str) -> JsonValue:
        """The value of an axis; of `ort` also the version that came with a user's own files.

        Device and engine are axes, too, although they are fields of their own in a record.
        """
        said = self.axes.get(name)
        if said is not None:
            return said
        if name == "device" and self.device is not None:
            return self.device.name
        return self.ort if name == "ort" else self.engine if name == "engine" else None

    @property
    def engine(self) -> str | None:
        """What executed; None in old records, which do not say it."""
        return self.placement.engine if self.placement is not None else None

    def may_be(self, other: Brief) -> bool:
        """Whether one of this name, or of other versions, may be this case: not with another
        engine.

        Old records do not say which it was.
        """
        engines = {self.engine, other.engine} - {None}
        return len(engines) < 2

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.fate.outcome

    @property
    def cause(self) -> Cause | None:
        """Whose failure it was."""
        return self.fate.cause

    @property
    def device(self) -> DeviceName | None:
        """Where it ran."""
        return self.fate.device

    @property
    def ort(self) -> str | None:
        """The version of ONNX Runtime that ran it."""
        return self.fate.ort

    @property
    def known_issue(self) -> str | None:
        """The known issue that it met."""
        return self.fate.known_issue

    @property
    def failure(self) -> str | None:
        """The signature of its error."""
        return self.fate.failure

    @property
    def diagnosis(self) -> str | None:
        """The id of the diagnosis of that."""
        return self.fate.diagnosis

    @property
    def breaks_strictness(self) -> bool:
        """Whether it passed where that was to fail the run."""
        return self.fate.breaks_strictness

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
        return self.fate.standing

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


def moment_text(moment: datetime) -> str:
    """A time in UTC as all times here are written, so that they sort."""
    text = moment.isoformat(timespec="microseconds")
    return f"{text.removesuffix('+00:00')}Z"


@uncollected()
def read_briefs(journal: Path, like: Iterable[Brief] = ()) -> tuple[list[Brief], LeftOut]:
    """All attempts of a journal in their order, and its lines that are no records.

    They share the names of cases with those of `like`. They do not say when they were begun, and
    what they measured is read again when it is asked for. Raises ConfigError if it cannot be read,
    or is wholly of another schema.
    """
    left_out, found, kept = LeftOut(), list[Brief](), OpenJournal(journal)
    names = {name: name for one in like for name in (one.case, one.test)}
    shared = HeldRecords(kept)
    for _, place, record in said_in(journal, kept):
        if isinstance(record, CaseRecord):
            axes = shared.axes(record.axes)
            again = axes is None or not COMPARED.isdisjoint(record.measurements)
            case, test = (names.get(name, name) for name in (record.case, record.test))
            placement, fate = shared.placement(record.placement), Fate.of(record)
            at = (kept, place) if again else ()
            found.append(Brief(case, test, placement, axes, fate, "", record.attempt, *at))
        elif isinstance(record, Damage):
            left_out.add(record)
    return found, left_out
