"""What `history --json` prints (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

from harness.answers.history.attempts import limits_of
from harness.answers.history.comparison import Bisectable, Pair
from harness.answers.history.comparison_json import CaseSide
from harness.answers.history.facts import CauseFacts
from harness.answers.history.states import CaseState, StateKind
from harness.answers.history.timeline import MARKS, CaseLine, kind_of, mark_of
from harness.ground.files.schema_field import Schema1
from harness.verdict.failure.error import Part
from harness.verdict.results.coverage import Fault


class KindRow(Part):
    """A kind of failure: when it was seen, how often, where, with which versions.

    `facts` are those of its most frequent cause by the last runs, if some case still fails so.
    """

    kind: str
    first: str
    last: str
    failures: int
    runs: int
    cases: int
    devices: tuple[str, ...]
    versions: tuple[str, ...]
    facts: CauseFacts | None = None


class CaseRow(Bisectable):
    """A case through all runs; with what else is `asked` of its file it is another case.

    `recent` has a character for each of its last runs: `.` passed, `F` failed, `x` failed as
    expected, `~` flaky, `?` lost to the lab, the harness or wrong input, `-` not tested. `since` is
    when it began to end as it does, `lost` why it has no verdict in its last run. Runs are counted
    by their last attempt, `attempts` are all of them. `last_good` and `first_bad` are the last pass
    and the first failure after it; of what never passed with its own versions, the last pass with
    other ones. `state` is what its last runs make of it; of what is flaky, `flaky_failed` of the
    `flaky_attempts` with the same versions failed. `limits` are those of simulated devices, if they
    alone tell that it fails.
    """

    case: str
    asked: str = ""
    fails: bool
    lost: Fault | None
    since: str
    runs: int
    passed: int
    failed: int
    expected: int
    no_verdict: int
    flaky_runs: int
    attempts: int = 0
    failed_attempts: int = 0
    pass_rate: float | None
    state: StateKind | None = None
    flaky_failed: int | None = None
    flaky_attempts: int | None = None
    recent: str
    kinds: tuple[str, ...]
    last_good: CaseSide | None
    last_good_at: str | None
    first_bad: CaseSide | None
    first_bad_at: str | None
    limits: str | None = None


class LackingRun(Part):
    """A run in which `not_run` cases left no record; null where it does not say how many it had."""

    run: str
    started: str
    not_run: int | None


class HistoryReport(Part):
    """What the runs that are held say of what was asked for. `lost` is how many cases lack a
    verdict in the last run that has them. `lacking` are runs in which cases left no record,
    whatever their names.
    """

    schema_number: Schema1 = 1
    kind: Literal["history"] = "history"
    runs: int
    first: str
    last: str
    lost: int
    lacking: tuple[LackingRun, ...]
    kinds: tuple[KindRow, ...]
    cases: tuple[CaseRow, ...]


def case_row(line: CaseLine, bisectable: Callable[[Pair, CaseState | None], Bisectable]) -> CaseRow:
    """A line as it is told; `bisectable` says how to find what changed from pass to failure."""
    edge = line.edge
    good, bad = (edge.before, edge.after) if edge is not None else (None, None)
    state = line.case_state
    flaky = state if state and state.is_flaky else None
    runs, verdicts = len(line.seen), len(line.seen_judged)
    failures = [one.last for one in line.seen_judged if one.last.is_bad]
    passed = verdicts - len(failures)
    return CaseRow(
        case=line.last.case,
        asked=line.last.asked,
        fails=line.fails,
        lost=line.last.fault,
        since=line.since,
        runs=runs,
        passed=passed,
        failed=len(failures),
        expected=sum(one.known_issue is not None for one in failures),
        no_verdict=runs - verdicts,
        flaky_runs=sum(one.is_flaky for one in line.seen),
        attempts=sum(one.verdicts for one in line.seen_judged),
        failed_attempts=sum(one.failed for one in line.seen_judged),
        pass_rate=passed / verdicts if verdicts else None,
        state=state.kind if state else None,
        flaky_failed=flaky.failed if flaky else None,
        flaky_attempts=flaky.verdicts if flaky else None,
        recent="".join(map(mark_of, line.seen[-MARKS:])),
        kinds=tuple(kind for kind, _ in Counter(map(kind_of, failures)).most_common()),
        last_good=CaseSide.of(good),
        last_good_at=good.started if good else None,
        first_bad=CaseSide.of(bad),
        first_bad_at=line.since if bad else None,
        limits=limits_of(filter(None, (good, line.bad))) if line.fails else None,
        **dict(bisectable(edge, state) if edge is not None else Bisectable()),
    )
