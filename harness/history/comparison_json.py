"""The output of `compare --json` (pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from harness.core.schema_field import Schema1
from harness.diagnosis.error import Outcome, Part
from harness.history.attempts import Attempt
from harness.history.comparison import TITLES, Bisectable, Category, Pair
from harness.history.comparison_text import ComparisonView
from harness.history.ops import OpsCompared
from harness.history.performance import SpeedCompared, alike
from harness.history.states import format_versions, versions_of
from harness.results.coverage import Coverage
from harness.results.drift import DriftedOutput


class CaseSide(Part):
    """A case in a run: its name there, its outcome, what its failure is known by, and the versions
    that it ran with, in words."""

    case: str
    outcome: Outcome
    signature: str | None
    diagnosis: str | None
    known_issue: str | None
    attempts: int
    engine: str | None = None
    versions: str = ""

    @classmethod
    def of(cls, attempt: Attempt | None) -> CaseSide | None:
        if attempt is None:
            return None
        signature = attempt.signature if attempt.is_bad else None
        fields = {"signature": signature, "attempts": attempt.attempt}
        return cls(**alike(cls, attempt) | fields, versions=format_versions(versions_of(attempt)))


class Row(Bisectable):
    """A case in the base and in the new run; null where a run does not have it."""

    case: str
    before: CaseSide | None
    after: CaseSide | None


class DriftRow(Part):
    """An output of a case that differs from that of the base."""

    case: str
    output: DriftedOutput


class ComparisonReport(Part):
    """Two runs compared: the cases of each category, and the `versions` of each run.

    `coverage` is how many cases of the new run have a verdict, `base_coverage` of the base.
    `passing` and `untested` are numbers, `speed` is null where it was not judged, `ops` where no
    case was profiled in both. `files_changed` are files of tests, models and inputs.
    `asked_otherwise` are cases of user's files with other options, which makes them other cases of
    the same name. `failed_on` has the conditions of `--fail-on` that hold: the comparison ends
    with 1 exactly if there are any, else with 2 or 3 if verdicts are missing in the new run.
    """

    schema_number: Schema1 = 1
    kind: Literal["comparison"] = "comparison"
    base: str
    run: str
    base_versions: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    verdict: str
    coverage: Coverage
    base_coverage: Coverage
    failed_on: tuple[str, ...]
    files_changed: tuple[str, ...] = ()
    asked_otherwise: tuple[str, ...] = ()
    exit_code: int
    new: tuple[Row, ...] = ()
    changed: tuple[Row, ...] = ()
    flaky: tuple[Row, ...] = ()
    vanished: tuple[Row, ...] = ()
    lab: tuple[Row, ...] = ()
    added: tuple[Row, ...] = ()
    known: tuple[Row, ...] = ()
    fixed: tuple[Row, ...] = ()
    failing: tuple[Row, ...] = ()
    drifted: tuple[DriftRow, ...]
    speed: SpeedCompared | None
    ops: OpsCompared | None = None
    passing: int
    untested: int


def report_of(
    view: ComparisonView, bisectable: Callable[[Category, Pair], Bisectable]
) -> ComparisonReport:
    """Return the report of a comparison, with the bisection of each case."""
    rows: dict[str, Any] = {
        category: tuple(
            Row(
                case=pair.shown.case,
                before=CaseSide.of(pair.before),
                after=CaseSide.of(pair.after),
                **dict(bisectable(category, pair)),
            )
            for pair in view[category]
        )
        for category in TITLES
    }
    drifted = tuple(
        DriftRow(case=drifted.pair.shown.case, output=output.document())
        for drifted in view.drifted
        for output in drifted.outputs
    )
    counts = {name: len(view[name]) for name in ("passing", "untested")}
    fields = alike(ComparisonReport, view) | counts | {"drifted": drifted}
    return ComparisonReport(**fields, **rows)
