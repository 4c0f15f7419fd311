"""What `compare --json` prints (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from harness.core.schema_field import Schema1
from harness.diagnosis.error import Outcome, Part
from harness.history.attempts import Attempt
from harness.history.comparison import Bisectable, Category, Pair
from harness.history.comparison_text import ToldComparison
from harness.history.ops import OpsCompared
from harness.history.performance import SpeedCompared, alike
from harness.history.states import said_versions, versions_of
from harness.results.coverage import Coverage
from harness.results.drift import DriftedOutput


class CaseSide(Part):
    """A case in a run: its name there, how it ended, what its failure is known by, and the versions
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
        """The side of an attempt; None without one."""
        if attempt is None:
            return None
        signature = attempt.signature if attempt.is_bad else None
        said = {"signature": signature, "attempts": attempt.attempt}
        return cls(**alike(cls, attempt) | said, versions=said_versions(versions_of(attempt)))


class Row(Bisectable):
    """A case: what it was and is; null where a run has not got it."""

    case: str
    before: CaseSide | None
    after: CaseSide | None


class DriftRow(Part):
    """An output of a case that is not what it was."""

    case: str
    output: DriftedOutput


class ComparisonReport(Part):
    """Two runs side by side, and the `versions` of each: a list for all that can become of a case.

    `coverage` is how many cases of the new run have a verdict, `base_coverage` of the base.
    `passing` and `untested` are numbers, `speed` is null where it was not judged, `ops` where no
    case was profiled in both. `files_changed` are files of tests, models and inputs.
    `asked_otherwise` are cases of whose files something else was asked: others, of the same name.
    `failed_on` has what of `--fail-on` there is: the comparison ends with 1 exactly if that is not
    empty. Else it ends with 2 or 3 if verdicts are missing in the new run.
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


def rows(
    told: ToldComparison, category: Category, bisectable: Callable[[Category, Pair], Bisectable]
) -> Iterator[Row]:
    """The cases of a category, one at a time: there may be very many."""
    for pair in told[category]:
        before, after = map(CaseSide.of, (pair.before, pair.after))
        how = dict(bisectable(category, pair))
        yield Row(case=pair.shown.case, before=before, after=after, **how)


def report_head(told: ToldComparison) -> ComparisonReport:
    """All of the report but those lists."""
    drifted = tuple(
        DriftRow(case=drifted.pair.shown.case, output=output.document())
        for drifted in told.drifted
        for output in drifted.outputs
    )
    counts = {name: len(told[name]) for name in ("passing", "untested")}
    return ComparisonReport(**alike(ComparisonReport, told) | counts | {"drifted": drifted})
