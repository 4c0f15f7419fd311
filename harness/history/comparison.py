"""Comparison of two runs, case by case, and the reasons for it to fail a job (pure).

A run compared with itself has no differences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from harness.core.errors import ConfigError
from harness.core.json_record import Part
from harness.history.attempts import Attempt, CaseAttempts, attempts_by_name, finder, same_failure
from harness.history.case_states import CaseHistory, CaseState, format_versions, versions_of
from harness.history.environment_differences import devices_gone, files_changed
from harness.results.coverage import Coverage, coverage_of
from harness.results.output_drift import Output, Read, changes, steps_of

if TYPE_CHECKING:
    from harness.history.op_changes import OpsCompared
    from harness.history.speed_changes import SpeedCompared

Category = Literal[
    "new",
    "changed",
    "flaky",
    "vanished",
    "lab",
    "added",
    "known",
    "fixed",
    "failing",
    "passing",
    "untested",
]
"""The change of a case between two runs. Each case has one:

- new: it fails, and did not, or was expected to by a known issue
- changed: it failed before, and fails differently: another outcome, signature or diagnosis
- flaky: its attempts in one run do not agree, and in the other they did
- vanished: it had a verdict, and now was not run, was skipped, or is unsupported
- lab: the lab failed in it, or its input was wrong, and in the other run it did not
- added: it has a verdict, and had none
- known: it fails as a known issue expects, and did not fail so
- fixed: it failed, and passes
- failing: it fails as it did, or its attempts disagree as they did
- passing: it passes as it did; its speed and memory are judged, too
- untested: it has no verdict, and had none
"""

CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)

TITLES: Final[Mapping[Category, str]] = {
    "new": "new",
    "changed": "fails differently",
    "flaky": "flaky",
    "vanished": "vanished",
    "lab": "without a result this time",
    "added": "without an earlier result",
    "known": "expected failures",
    "fixed": "fixed",
    "failing": "still failing",
}
"""The categories whose cases are listed, in this order; the others are only counted."""

BISECTED: Final[tuple[Category, ...]] = ("new", "changed", "known")
"""The categories of which a bisection can find the version."""
_SWITCHES: Final[tuple[Category, ...]] = ("new", "changed", "flaky", "vanished", "lab", "added")
_OPS: Final = "ops"
_CHOICES: Final = (*_SWITCHES, "drift:STEPS", "perf:PERCENT%", _OPS)
# at least 1 %: by less any two runs differ
_PERF: Final = re.compile(r"perf:(\d{1,3}(?:\.\d{1,3})?)%", re.ASCII)


class Bisectable(Part):
    """The versions that changed, and the bisection that finds the one, or why there is none."""

    changed: tuple[str, ...] = ()
    bisect: tuple[str, ...] | None = None
    hindrance: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """The last attempt at a case in each of two runs; None where a run has no such case."""

    before: Attempt | None
    after: Attempt | None

    @property
    def names(self) -> set[str]:
        """The names of the case in the runs that have it."""
        return {side.case for side in (self.before, self.after) if side is not None}

    @property
    def shown(self) -> Attempt:
        """The attempt in the new run, or else that in the base."""
        attempt = self.after or self.before
        assert attempt is not None
        return attempt


class Drifted(Part):
    """A case with the outputs that differ from those of the base."""

    case: str
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Comparison:
    """All cases of two runs by category, in the order of the new run.

    `coverage` is that of the new run, `base_coverage` that of the base.
    """

    pairs: Mapping[Category, Sequence[Pair]]
    coverage: Coverage
    base_coverage: Coverage
    drifted: tuple[Drifted, ...] = ()
    speed: SpeedCompared | None = None
    """The changes of times; None if they were not compared."""
    ops: OpsCompared | None = None
    """The changes of ops; None if no case was profiled in both runs."""
    states: Mapping[str, CaseState] = field(default_factory=dict)
    """The states of flaky cases by name, where earlier runs were read."""
    files_changed: tuple[str, ...] = ()
    """Files of tests, models and inputs that changed."""
    devices_gone: Sequence[str] = ()
    """Devices that the base used, and the new run was not to use."""
    base_versions: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    """The versions that cases ran with, in words; empty where no case names any."""
    asked_otherwise: tuple[str, ...] = ()
    """Cases of user's files with other options than before, which makes them other cases."""
    other_power: tuple[str, ...] = ()
    """Cases of which the base has another power profile or other refused votes: their times are
    not compared."""

    def __getitem__(self, category: Category) -> Sequence[Pair]:
        return self.pairs[category]

    def cases(self, category: Category) -> list[str]:
        return [pair.shown.case for pair in self.pairs[category]]


@dataclass(frozen=True)
class FailOn:
    """The conditions of `--fail-on`, under which a comparison ends with 1."""

    categories: tuple[Category, ...]
    drift_steps: int | None = None
    slower: float | None = None
    """The least slowdown; 0.1 is 10 %."""
    ops: bool = False
    """True to fail if an op became slower."""

    @classmethod
    def parse(cls, text: str) -> FailOn:
        """Parse a list such as `new,vanished,drift:1,perf:10%,ops`. Raises ConfigError."""
        categories: list[Category] = []
        ops = False
        steps = slower = None
        for word in (part.strip() for part in text.split(",")):
            category = next((name for name in _SWITCHES if name == word), None)
            if category is not None:
                categories.append(category)
            elif (steps_given := steps_of(word)) is not None:
                steps = steps_given
            elif (percent := _PERF.fullmatch(word)) is not None and float(percent[1]) >= 1:
                slower = float(percent[1]) / 100
            elif word == _OPS:
                ops = True
            else:
                problem = f"{word!r} is not a valid condition to fail on"
                raise ConfigError(problem, field="--fail-on", choices=_CHOICES)
        return cls(tuple(dict.fromkeys(categories)), steps, slower, ops)

    def reasons(self, comparison: Comparison) -> list[str]:
        """Return the words of `--fail-on` that apply; empty if the comparison ends well.

        An added case counts only if it fails and no known issue expects that. A case without a
        record does not count as vanished if the new run did not run all of its cases.
        """
        lacks = comparison.coverage.not_run or comparison.coverage.selected is None
        reasons: list[str] = []
        for category in self.categories:
            pairs = comparison[category]
            if category == "added":
                pairs = [pair for pair in pairs if pair.shown.is_bad and not pair.shown.known_issue]
            if category == "vanished" and lacks:
                pairs = [pair for pair in pairs if pair.after is not None]
            if pairs:
                reasons.append(category)
        steps = self.drift_steps
        if steps is not None and any(
            output.beyond(steps) for drifted in comparison.drifted for output in drifted.outputs
        ):
            reasons.append(f"drift:{steps}")
        if self.slower is not None and comparison.speed is not None and comparison.speed.slower:
            reasons.append(f"perf:{100 * self.slower:g}%")
        if self.ops and comparison.ops is not None and comparison.ops.slower:
            reasons.append(_OPS)
        return reasons


def compare(
    before: Iterable[Attempt],
    after: Iterable[Attempt],
    read: Read | None = None,
    *,
    infos: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None] = (None, None),
) -> Comparison:
    """Compare two runs, whatever their order and whatever versions they ran with.

    A case is paired with the case of its name, or else with the only case that differs in versions
    alone; a case with another engine is another case. `read` returns the bytes of an output kept by
    either run; without it, outputs are not compared. `infos` is the run.json of each run; without
    it, a run has no cases but those with records.
    """
    runs = [*before], [*after]
    base, covered = (coverage_of(run, info) for run, info in zip(runs, infos, strict=True))
    old, new = map(attempts_by_name, runs)
    find = finder(old)
    matched: set[str] = set()
    pairs: dict[Category, list[Pair]] = {category: [] for category in CATEGORIES}
    drifted: list[Drifted] = []
    for now in new.values():
        then = find(now.last)
        if then is not None:
            matched.add(then.last.case)
        pair = Pair(then.last if then is not None else None, now.last)
        pairs[_became(then, now)].append(pair)
        if read is not None and then is not None:
            outputs = changes(now.last, then.last, read) or ()
            if drifting := tuple(output for output in outputs if output.drifts):
                drifted.append(Drifted(case=pair.shown.case, outputs=drifting))
    for name, then in old.items():
        if name not in matched:
            pairs["vanished" if then.last.has_verdict else "untested"].append(Pair(then.last, None))
    return Comparison(
        pairs,
        covered,
        base,
        tuple(drifted),
        files_changed=files_changed(*infos),
        devices_gone=devices_gone(*infos),
        base_versions=_versions(old),
        versions=_versions(new),
        asked_otherwise=tuple(
            name for name in new if name in old and old[name].last.test != new[name].last.test
        ),
        other_power=_other_power(old, chain.from_iterable(pairs.values())),
    )


def _other_power(base: Mapping[str, CaseAttempts], pairs: Iterable[Pair]) -> tuple[str, ...]:
    profiles: dict[str, set[str | None]] = {}
    for case in base.values():
        profiles.setdefault(case.last.power_group, set()).add(case.last.power)
    names = []
    for before, now in ((pair.before, pair.after) for pair in pairs):
        if now is not None:
            usual = {before.power} if before is not None else profiles.get(now.power_group)
            names += [now.case] if usual and now.power not in usual else []
    return tuple(names)


def _versions(run: Mapping[str, CaseAttempts]) -> tuple[str, ...]:
    judged = (case.last for case in run.values() if case.last.has_verdict)
    return tuple(sorted({format_versions(versions_of(last)) for last in judged} - {""}))


def apply_history(comparison: Comparison, histories: Mapping[str, CaseHistory]) -> Comparison:
    """Return the comparison corrected by earlier runs; `histories` has cases by their names now.

    A case without a verdict in the base is compared with its last verdict, if either failed. A
    flaky case stays flaky, so that it is neither new nor fixed.
    """
    pairs: dict[Category, list[Pair]] = {category: [] for category in CATEGORIES}
    for category, listed in comparison.pairs.items():
        for pair in listed:
            after = pair.after
            known = histories.get(after.case) if after and after.has_verdict else None
            became = category
            if known is not None:
                became, pair = _apply_history(category, pair, known)
            pairs[became].append(pair)
    flaky = {name: case.state for name, case in histories.items() if case.is_flaky and case.state}
    return replace(comparison, pairs=pairs, states=flaky)


def _apply_history(category: Category, pair: Pair, known: CaseHistory) -> tuple[Category, Pair]:
    if known.is_flaky:
        return "flaky", pair
    last = known.last
    if category == "added" and last and (last.last.is_bad or known.now.last.is_bad):
        return _became(last, known.now), Pair(last.last, pair.after)
    if category == "flaky":  # it was, and has ended alike for long
        return "failing" if known.now.last.is_bad else "passing", pair
    return category, pair


def _became(then: CaseAttempts | None, now: CaseAttempts) -> Category:
    if not now.last.has_verdict:
        return _without_verdict(then.last if then is not None else None, now.last)
    if then is None or not then.last.has_verdict:
        return "added"
    was = then.last
    if then.is_flaky or now.is_flaky:
        return _of_flaky(then, now)
    if not now.last.is_bad:
        return "fixed" if was.is_bad else "passing"
    if not was.is_bad:
        return "known" if now.last.known_issue else "new"
    return _still_bad(was, now.last)


def _without_verdict(was: Attempt | None, now: Attempt) -> Category:
    if now.fault is not None:
        return "untested" if was is not None and was.fault is not None else "lab"
    return "vanished" if was is not None and was.has_verdict else "untested"


def _of_flaky(then: CaseAttempts, now: CaseAttempts) -> Category:
    """A way to fail that was not seen before counts, however flaky the case was."""
    unseen = not set(now.failures) <= set(then.failures)
    if then.is_flaky and unseen:
        return "known" if now.last.known_issue else "changed"
    return "failing" if then.is_flaky and now.is_flaky else "flaky"


def _still_bad(was: Attempt, now: Attempt) -> Category:
    if not same_failure(was, now):
        return "known" if now.known_issue else "changed"
    if was.known_issue and not now.known_issue:
        return "new"
    # what no rule knew is not said to be anything else
    named = was.diagnosis is not None and now.diagnosis is not None
    if named and was.diagnosis != now.diagnosis and not now.known_issue:
        return "changed"
    return "failing"
