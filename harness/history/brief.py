"""What comparing needs of a record, which is a part of it: many of them are held at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from harness.errors import Cause
from harness.failure.error import Outcome
from harness.results.coverage import VERDICTS, Fault, Standing, fault_of, standing_of
from harness.results.journal import Lean, LeftOut, cases_in, uncollected
from harness.results.record import NO_CAUSE, CaseRecord


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a device."""

    name: str


@dataclass(frozen=True, slots=True)
class Brief:
    """One attempt at one case; the fields mean what they mean in a `CaseRecord`.

    `failure` is the signature of its error, `diagnosis` the id of that.
    """

    case: str
    axes: dict[str, JsonValue]
    outcome: Outcome
    started: str
    cause: Cause | None = None
    device: Named | None = None
    ort: str | None = None
    known_issue: str | None = None
    failure: str | None = None
    diagnosis: str | None = None
    attempt: int = 1
    measurements: Mapping[str, Any] = field(default_factory=dict)
    breaks_strictness: bool = False

    @classmethod
    def of(cls, record: CaseRecord) -> Brief:
        """The same, of a whole record."""
        error, device = record.error, record.device
        return cls(
            record.case,
            record.axes,
            record.outcome,
            moment_text(record.started),
            record.cause,
            _named(device.name) if device is not None else None,
            record.runtime.ort if record.runtime is not None else None,
            record.known_issue,
            error.signature if error is not None else None,
            error.diagnosis.id if error is not None and error.diagnosis is not None else None,
            record.attempt,
            record.measurements,
            record.breaks_strictness,
        )

    def axis(self, name: str) -> JsonValue:
        """The value of an axis; of `ort` also the version that came with a user's own files.

        The device is one, whether or not cases were asked for on each.
        """
        said = self.axes.get(name)
        if said is None and name == "device":
            return self.device.name if self.device is not None else None
        return self.ort if name == "ort" and said is None else said

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


@lru_cache(1000)
def _named(name: str) -> Named:
    return Named(name)


def moment_text(moment: datetime) -> str:
    """A time in UTC as all times here are written, so that they sort."""
    text = moment.isoformat(timespec="microseconds")
    return f"{text.removesuffix('+00:00')}Z"


@uncollected()
def read_briefs(journal: Path) -> tuple[list[Brief], LeftOut]:
    """All attempts of a journal in their order, and its lines that are no records.

    Raises ConfigError if it cannot be read, or is wholly of another schema.
    """
    left_out, lean, found = LeftOut(), Lean(), list[Brief]()
    for _, record in cases_in(journal, left_out):
        lean.make(record)
        found.append(Brief.of(record))
    return found, left_out
