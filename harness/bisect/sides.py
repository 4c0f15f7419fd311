"""The two runs of a bisection to set side by side: one before the change, one after it (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        return _closest(finding, answers)
    return None, None


def _last(answers: Sequence[Answered], at: Place, answer: Answer) -> int | None:
    found = [i for i, entry in enumerate(answers) if (entry.at, entry.answer) == (at, answer)]
    return found[-1] if found else None


def _closest(finding: GridFinding, answers: Sequence[Answered]) -> tuple[int | None, int | None]:
    rows = list(dict.fromkeys(row for row, _ in finding.cells))
    columns = list(dict.fromkeys(column for _, column in finding.cells))

    def spot(at: Place) -> tuple[int, int]:
        return rows.index(at[0]), columns.index(at[1])

    pairs = []
    for i, one in enumerate(answers):
        for j, other in enumerate(answers):
            if (one.answer, other.answer) != ("good", "bad"):
                continue
            (a, b), (c, d) = spot(one.at), spot(other.at)
            # pairs that differ on one axis only say more than neighbours across a corner
            pairs.append((a != c and b != d, abs(a - c) + abs(b - d), -i, -j, i, j))
    if not pairs:
        return None, None
    *_, good, bad = min(pairs)
    older_first = spot(answers[good].at) < spot(answers[bad].at)
    return (good, bad) if older_first else (bad, good)


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
