"""The two runs of a bisection to set side by side: one before the change, one after it (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.bisect.answers import Answer, Place
from harness.bisect.findings import Finding
from harness.bisect.grid_findings import GridFinding
from harness.bisect.log import Answered
from harness.results.record import CaseRecord

Recorded = Mapping[int, CaseRecord]
"""The records of answered runs, by their position among the answers."""


def sides_of(
    finding: Finding | GridFinding | None, answers: Sequence[Answered]
) -> tuple[int | None, int | None]:
    """The runs to set side by side, the older first: their positions among the answers.

    On one axis the neighbours of the change. On a grid the two pairs of unlike answers that lie
    closest to each other.
    """
    if isinstance(finding, Finding):
        if finding.before is None or finding.after is None:
            return None, None
        good_first = finding.direction == "regression"
        wanted: tuple[Answer, Answer] = ("good", "bad") if good_first else ("bad", "good")
        return _last(answers, (finding.before,), wanted[0]), _last(
            answers, (finding.after,), wanted[1]
        )
    if isinstance(finding, GridFinding):
        pairs = _unlike(finding, answers)
        return pairs[0].older_first() if pairs else (None, None)
    return None, None


def edges_of(
    finding: Finding | GridFinding | None, answers: Sequence[Answered]
) -> list[tuple[int, int]]:
    """The pairs of runs that show what made a difference; `sides_of` first.

    On a grid on which both axes matter there is one for each: the closest unlike answers that
    differ on that axis alone, as far as there are any.
    """
    before, after = sides_of(finding, answers)
    if before is None or after is None:
        return []
    edges = [(before, after)]
    if isinstance(finding, GridFinding):
        pairs = _unlike(finding, answers)
        shown = pairs[0].on
        for axis in range(2):
            alone = [pair for pair in pairs if pair.on == {axis}]
            if alone and axis not in shown and finding.mattered[axis] is not False:
                edges.append(alone[0].older_first())
    return edges


def _last(answers: Sequence[Answered], at: Place, answer: Answer) -> int | None:
    found = [i for i, entry in enumerate(answers) if (entry.at, entry.answer) == (at, answer)]
    return found[-1] if found else None


@dataclass(frozen=True)
class _Unlike:
    """A good run and a bad one; `on` are the axes, 0 or 1, on which they differ."""

    good: int
    bad: int
    on: frozenset[int]
    apart: int
    good_is_older: bool

    def order(self) -> tuple[int, int, int, int]:
        # pairs that differ on one axis only say more than neighbours across a corner
        return len(self.on), self.apart, -self.good, -self.bad

    def older_first(self) -> tuple[int, int]:
        return (self.good, self.bad) if self.good_is_older else (self.bad, self.good)


def _unlike(finding: GridFinding, answers: Sequence[Answered]) -> list[_Unlike]:
    """All pairs of a good and a bad answer, those that tell most first."""
    rows = list(dict.fromkeys(row for row, _ in finding.cells))
    columns = list(dict.fromkeys(column for _, column in finding.cells))
    spots = [(rows.index(one.at[0]), columns.index(one.at[1])) for one in answers]
    pairs = []
    for i, one in enumerate(answers):
        for j, other in enumerate(answers):
            if (one.answer, other.answer) == ("good", "bad"):
                steps = [abs(a - b) for a, b in zip(spots[i], spots[j], strict=True)]
                on = frozenset(axis for axis, far in enumerate(steps) if far)
                pairs.append(_Unlike(i, j, on, sum(steps), spots[i] < spots[j]))
    return sorted(pairs, key=_Unlike.order)


def side_as_json(
    number: int | None, answers: Sequence[Answered], records: Recorded
) -> dict[str, Any] | None:
    """One side as JSON has it: where, what came of it, how far it got, and its evidence."""
    if number is None:
        return None
    entry, record = answers[number], records.get(number)
    side: dict[str, Any] = {
        "at": list(entry.at),
        "answer": entry.answer,
        "run": entry.run,
        "case": entry.case,
        "outcome": record.outcome if record else None,
        "error": None,
        "runtime": None,
        "steps": None,
        "evidence": [],
    }
    if record is not None:
        error = record.error
        side |= {
            "error": error.model_dump(mode="json") if error else None,
            "runtime": record.runtime.model_dump(mode="json") if record.runtime else None,
            "steps": _steps(record),
            "evidence": [f"{entry.run}/{log}" for log in record.logs],
        }
    return side


def _steps(record: CaseRecord) -> dict[str, Any]:
    """How far the case came: its measured counts, and the step that failed."""
    counts = ("loaded", "executed", "freed", "sessions")
    found = {name: record.measurements[name] for name in counts if name in record.measurements}
    error = record.error
    failed = {} if error is None else {"failed_step": error.step, "failed_context": error.context}
    return {**found, **failed, "seconds": record.duration_s}
