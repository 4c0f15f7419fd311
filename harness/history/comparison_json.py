"""What `compare --json` prints (pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import JsonValue

from harness.failure.error import Outcome, Part
from harness.history.brief import Brief
from harness.history.comparison import Category, Pair
from harness.history.comparison_text import TITLES, Told
from harness.results.record import as_json


class Side(Part):
    """A case in one of the runs: its name there, how it ended, and what its failure is known by."""

    case: str
    outcome: Outcome
    signature: str | None
    diagnosis: str | None
    known_issue: str | None
    attempts: int

    @classmethod
    def of(cls, brief: Brief | None) -> Side | None:
        """None of none."""
        if brief is None:
            return None
        return cls(
            case=brief.case,
            outcome=brief.outcome,
            signature=brief.signature if brief.is_bad else None,
            diagnosis=brief.diagnosis,
            known_issue=brief.known_issue,
            attempts=brief.attempt,
        )


class Bisectable(Part):
    """Which versions changed, the bisection that tells which it was, or why there is none."""

    changed: tuple[str, ...] = ()
    bisect: tuple[str, ...] | None = None
    hindrance: str | None = None


class Row(Bisectable):
    """A case: what it was and is; null where a run has not got it."""

    case: str
    before: Side | None
    after: Side | None


class DriftRow(Part):
    """An output of a case that is not what it was."""

    case: str
    output: JsonValue


class ComparisonReport(Part):
    """Two runs side by side: a list for each thing that can become of a case.

    `passing` and `untested` are numbers. `failed_on` has what of `--fail-on` there is: the
    comparison ends with 1 exactly if that is not empty.
    """

    schema_version: Literal[1] = 1
    kind: Literal["comparison"] = "comparison"
    base: str
    run: str
    verdict: str
    failed_on: tuple[str, ...]
    new: tuple[Row, ...]
    changed: tuple[Row, ...]
    flaky: tuple[Row, ...]
    vanished: tuple[Row, ...]
    lab: tuple[Row, ...]
    added: tuple[Row, ...]
    known: tuple[Row, ...]
    fixed: tuple[Row, ...]
    failing: tuple[Row, ...]
    drifted: tuple[DriftRow, ...]
    passing: int
    untested: int
    bisections: tuple[JsonValue, ...] | None = None


def comparison_report(
    told: Told, bisectable: Callable[[Category, Pair], Bisectable]
) -> ComparisonReport:
    """The report, without bisections that were run."""
    found = told.comparison
    listed = {
        name: tuple(_row(pair, bisectable(name, pair)) for pair in found[name]) for name in TITLES
    }
    drifted = tuple(
        DriftRow(case=one.pair.shown.case, output=as_json(output.as_json()))
        for one in found.drifted
        for output in one.outputs
    )
    return ComparisonReport.model_validate(
        {
            "base": told.base,
            "run": told.run,
            "verdict": told.verdict,
            "failed_on": told.reasons,
            "drifted": drifted,
            "passing": len(found["passing"]),
            "untested": len(found["untested"]),
            **listed,
        }
    )


def _row(pair: Pair, more: Bisectable) -> Row:
    return Row(
        case=pair.shown.case,
        before=Side.of(pair.before),
        after=Side.of(pair.after),
        **dict(more),
    )
