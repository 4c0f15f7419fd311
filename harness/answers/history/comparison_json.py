"""What `compare --json` prints (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from harness.answers.history.attempts import Attempt
from harness.answers.history.comparison import Category, Pair
from harness.answers.history.comparison_text import ToldComparison
from harness.answers.history.ops import OpsCompared
from harness.answers.history.performance import Change, SpeedVerdict
from harness.answers.history.speed import Speed
from harness.answers.history.states import said_versions, versions_of
from harness.ground.files.schema_field import Schema1
from harness.verdict.failure.error import Outcome, Part
from harness.verdict.results.coverage import Coverage
from harness.verdict.results.drift import DriftedOutput
from harness.verdict.results.json_value import as_json

LimitOrNull = Annotated[float | None, BeforeValidator(as_json)]
"""Null where there is none."""


def alike(shape: type[Part], *sources: object) -> dict[str, Any]:
    """The values that `sources` have for a shape's fields; of several the last counts."""
    return {
        name: getattr(source, name)
        for source in sources
        for name in shape.model_fields
        if hasattr(source, name)
    }


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


class Bisectable(Part):
    """Which versions changed, the bisection that tells which it was, or why there is none."""

    changed: tuple[str, ...] = ()
    bisect: tuple[str, ...] | None = None
    hindrance: str | None = None


class Row(Bisectable):
    """A case: what it was and is; null where a run has not got it."""

    case: str
    before: CaseSide | None
    after: CaseSide | None


class DriftRow(Part):
    """An output of a case that is not what it was."""

    case: str
    output: DriftedOutput


class SpeedRow(Part):
    """A figure of a case, or of all cases of a device (`case` is null), that changed or may have.

    `ratio` is new by base, and lies between `low` and `high` (null: there is no bound). `more_new`
    and `more_base` say how many more runs should settle it; null if not known. `tells` is the
    smallest ratio that five runs of either side tell from its noise. `surroundings` are those that
    differ, in words.
    """

    device: str
    case: str | None
    figure: str
    verdict: SpeedVerdict
    ratio: float
    low: LimitOrNull
    high: LimitOrNull
    p: float
    base_runs: int
    new_runs: int
    more_new: int | None
    more_base: int | None
    tells: float | None = None
    surroundings: tuple[str, ...] = ()

    @classmethod
    def of(cls, change: Change, speed: Speed) -> SpeedRow:
        """The same as JSON has it."""
        surroundings = tuple(speed.around.get(change.name, ()))
        return cls(**alike(cls, change.name, change), surroundings=surroundings)


class SpeedGroup(Part):
    """The geometric mean of a figure over all cases of a device: new by base."""

    device: str
    figure: str
    cases: int
    mean: float
    low: LimitOrNull
    high: LimitOrNull


class SpeedReport(Part):
    """Speed and memory of what passes in both runs; listed is what changed by `effect` or more.

    `base_runs` and `new_runs` are how many runs were looked at. `same` and `unsure` are numbers of
    figures; of the unsure, `suspects` may well be changes, and of `hidden` noise hides whether they
    are.
    """

    effect: float
    base_runs: int
    new_runs: int
    slower: tuple[SpeedRow, ...]
    faster: tuple[SpeedRow, ...]
    suspects: tuple[SpeedRow, ...]
    hidden: tuple[SpeedRow, ...] = ()
    same: int
    unsure: int
    groups: tuple[SpeedGroup, ...]

    @classmethod
    def of(cls, speed: Speed) -> SpeedReport:
        """The same as JSON has it."""
        listed = {"slower": speed.told("slower"), "faster": speed.told("faster")}
        listed |= {"suspects": speed.suspects, "hidden": speed.hidden}
        groups = speed.judged.groups
        return cls(
            effect=speed.effect,
            base_runs=speed.base_runs,
            new_runs=speed.new_runs,
            same=speed.count("same"),
            unsure=speed.count("unsure"),
            groups=tuple(SpeedGroup(**alike(SpeedGroup, one.name, one)) for one in groups),
            **{k: tuple(SpeedRow.of(one, speed) for one in found) for k, found in listed.items()},
        )


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
    speed: SpeedReport | None
    ops: OpsCompared | None = None
    passing: int
    untested: int


def rows(
    told: ToldComparison, category: Category, bisectable: Callable[[Category, Pair], Bisectable]
) -> Iterator[Row]:
    """The cases of a category, one at a time: there may be very many."""
    for pair in told.comparison[category]:
        yield Row(
            case=pair.shown.case,
            before=CaseSide.of(pair.before),
            after=CaseSide.of(pair.after),
            **dict(bisectable(category, pair)),
        )


def report_head(told: ToldComparison) -> ComparisonReport:
    """All of the report but those lists."""
    found = told.comparison
    assert told.base is not None
    return ComparisonReport(
        base=told.base,
        run=told.run,
        base_versions=tuple(found.base_versions),
        versions=tuple(found.versions),
        verdict=told.verdict,
        coverage=found.coverage,
        base_coverage=found.base_coverage,
        failed_on=tuple(told.reasons),
        files_changed=tuple(found.files_changed),
        asked_otherwise=tuple(found.asked_otherwise),
        exit_code=told.exit_code,
        drifted=tuple(
            DriftRow(case=drifted.pair.shown.case, output=output.document())
            for drifted in found.drifted
            for output in drifted.outputs
        ),
        speed=None if found.speed is None else SpeedReport.of(found.speed),
        ops=found.ops,
        passing=len(found["passing"]),
        untested=len(found["untested"]),
    )
