"""What a record forecast of its contexts, beside what was loaded then: a line of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from harness.answers.report.summary import part_of
from harness.ground.errors.outgoing_text import counted
from harness.verdict.results.record import CaseRecord

_MOST_DOMAINS: Final = 64


@dataclass(frozen=True)
class DomainForecast:
    """How full each protection domain (PD) was to become, and what came of it.

    `budget_bytes` is what each has. `refused_bytes` is what the first context takes that was not to
    fit, 0 if all were to fit.
    """

    record: CaseRecord
    budget_bytes: int
    used_bytes: tuple[int, ...]
    loads: int
    refused: str
    refused_bytes: int
    missing_bytes: int

    @property
    def words(self) -> str:
        """How full each gets, in words."""
        used, room = sum(self.used_bytes), self.budget_bytes * len(self.used_bytes)
        full = f"{used:,} of {room:,} bytes, {counted(self.loads, 'context')}"
        if not self.refused_bytes:
            return f"{full}: all fit"
        return (
            f"{full}; {self.refused}, {self.refused_bytes:,} bytes, does not fit: "
            f"{self.missing_bytes:,} bytes are missing"
        )

    @property
    def came_true(self) -> str:
        """How many contexts were loaded, and whether so many were to be."""
        loaded = self.record.measurements.get("loaded")
        if loaded == self.loads:
            return f"{loaded} loaded, as forecast"
        return f"{loaded if isinstance(loaded, int) else 'none'} loaded, not {self.loads}"


def forecast_of(record: CaseRecord) -> DomainForecast | None:
    """What a record forecast; None if it did not, or not in the form of this version."""
    if not (told := part_of(record, "forecast")):
        return None
    refused = told.get("first_refused")
    beyond: dict[str, Any] = refused if isinstance(refused, dict) else {}
    budget, loads = _size(told.get("budget_bytes")), _size(told.get("loaded"))
    needed, missing = _size(beyond.get("bytes")), _size(beyond.get("missing_bytes"))
    listed = told.get("used_bytes")
    used = tuple(map(_size, listed[:_MOST_DOMAINS])) if isinstance(listed, list) else ()
    if not budget or not used or (beyond and not needed >= missing > 0):
        return None
    named = f"the next, {beyond.get('context')}"
    return DomainForecast(record, budget, used, loads, named, needed, missing)


def _size(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 63 else 0
