"""Two runs case by case: what became of each case, and what of that fails a job (pure).

Whatever stands in both runs alike is no difference: a run compared with itself has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from harness.core.errors import ConfigError
from harness.diagnosis.error import Part
from harness.history.attempts import (
    Attempt,
    EarlierAttempts,
    attempts_by_name,
    finder,
    same_failure,
)
from harness.history.states import CaseHistory, CaseState, said_versions, versions_of
from harness.history.surroundings import devices_gone, files_changed
from harness.results.coverage import Coverage, coverage_of
from harness.results.drift import Output, Read, changes, steps_of

if TYPE_CHECKING:
    from harness.history.ops import OpsCompared
    from harness.history.performance import SpeedCompared

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
"""What became of a case. Each has one:

- new: it fails, and did not, or was expected to by a known issue
- changed: it failed before, and fails otherwise: another outcome, signature or diagnosis
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
    "changed": "fails otherwise",
    "flaky": "flaky",
    "vanished": "vanished",
    "lab": "no verdict this time",
    "added": "judged now, not before",
    "known": "fails as known",
    "fixed": "fixed",
    "failing": "still failing",
}
"""What is told case by case, in this order; the other cases are only counted."""

BISECTED: Final[tuple[Category, ...]] = ("new", "changed", "known")
"""What became of cases where a bisection can tell which version it was."""
_SWITCHES: Final = ("new", "changed", "flaky", "vanished", "lab", "added")
_OPS: Final = "ops"
_CHOICES: Final = (*_SWITCHES, "drift:STEPS", "perf:PERCENT%", _OPS)
# at least 1 %: by less any two runs differ
_PERF: Final = re.compile(r"perf:(\d{1,3}(?:\.\d{1,3})?)%", re.ASCII)


class Bisectable(Part):
    """Which versions changed, the bisection that tells which it was, or why there is none."""

    changed: tuple[str, ...] = ()
    bisect: tuple[str, ...] | None = None
    hindrance: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A case in both runs, the last attempt of each; None where a run has not got it."""

    before: Attempt | None
    after: Attempt | None

    @property
    def names(self) -> set[str]:
        """What the case is called in the runs that have it."""
        return {side.case for side in (self.before, self.after) if side is not None}

    @property
    def shown(self) -> Attempt:
        """The newer of the two that there are."""
        found = self.after or self.before
        assert found is not None
        return found


@dataclass(frozen=True)
class Drifted:
    """A case whose outputs differ from those of the earlier run, and these outputs."""

    pair: Pair
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Comparison:
    """All cases of two runs by what became of them, in the order of the new run.

    `coverage` is how many cases of the new run have a verdict, `base_coverage` of the earlier one.
    """

    pairs: Mapping[Category, Sequence[Pair]]
    coverage: Coverage
    base_coverage: Coverage
    drifted: Sequence[Drifted] = ()
    speed: SpeedCompared | None = None
    """None where it was not judged."""
    ops: OpsCompared | None = None
    """None where no case was profiled in both runs."""
    states: Mapping[str, CaseState] = field(default_factory=dict)
    """What flaky cases are at, by their names, where all runs before were looked at."""
    files_changed: tuple[str, ...] = ()
    """Files of tests, models and inputs that are others than before."""
    devices_gone: Sequence[str] = ()
    """Devices that the earlier run used, and the new one was not to use."""
    base_versions: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    """With which versions cases ran, in words; none where no case says."""
    asked_otherwise: tuple[str, ...] = ()
    """Cases of whose files something else was asked than before, so that they are others."""

    def __getitem__(self, category: Category) -> Sequence[Pair]:
        return self.pairs[category]

    def cases(self, category: Category) -> list[str]:
        """The names of the cases in a category."""
        return [pair.shown.case for pair in self.pairs[category]]


@dataclass(frozen=True)
class FailOn:
    """What is to end a comparison with 1."""

    categories: tuple[Category, ...]
    drift_steps: int | None = None
    slower: float | None = None
    """By how much: 0.1 is 10 %."""
    ops: bool = False
    """An op that became slower."""

    @classmethod
    def parse(cls, text: str) -> FailOn:
        """Reads `new,vanished,drift:1,perf:10%,ops`. Raises ConfigError for anything else."""
        categories: list[Category] = []
        ops = False
        steps = slower = None
        for word in (part.strip() for part in text.split(",")):
            found = next((one for one in CATEGORIES if one == word and one in _SWITCHES), None)
            if found is not None:
                categories.append(found)
            elif (steps_given := steps_of(word)) is not None:
                steps = steps_given
            elif (percent := _PERF.fullmatch(word)) is not None and float(percent[1]) >= 1:
                slower = float(percent[1]) / 100
            elif word == _OPS:
                ops = True
            else:
                problem = f"{word!r} is nothing to fail on"
                raise ConfigError(problem, field="--fail-on", choices=_CHOICES)
        return cls(tuple(dict.fromkeys(categories)), steps, slower, ops)

    def reasons(self, found: Comparison) -> list[str]:
        """The words of `--fail-on` that apply; empty if the comparison ends well.

        An added case counts only if it fails and no known issue expects that. If the new run did
        not run all of its cases, a case without a record has not vanished.
        """
        lacks = found.coverage.not_run or found.coverage.selected is None
        told: list[str] = []
        for category in self.categories:
            pairs = found[category]
            if category == "added":
                pairs = [pair for pair in pairs if pair.shown.is_bad and not pair.shown.known_issue]
            if category == "vanished" and lacks:
                pairs = [pair for pair in pairs if pair.after is not None]
            if pairs:
                told.append(category)
        steps = self.drift_steps
        if steps is not None and any(
            output.beyond(steps) for one in found.drifted for output in one.outputs
        ):
            told.append(f"drift:{steps}")
        if self.slower is not None and found.speed is not None and found.speed.slower:
            told.append(f"perf:{100 * self.slower:g}%")
        if self.ops and found.ops is not None and found.ops.slower:
            told.append(_OPS)
        return told


def compare(
    before: Iterable[Attempt],
    after: Iterable[Attempt],
    read: Read | None = None,
    *,
    infos: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None] = (None, None),
) -> Comparison:
    """Compares two runs, whatever their order and whatever versions they ran with.

    Cases of the same name belong together; else those that differ in their versions only, if that
    leaves one. With another engine it is another case. `read` gives the bytes of an output that
    either run has kept; without it, outputs are not compared. `infos` is run.json of each; without
    it there are no cases but these.
    """
    runs = [*before], [*after]
    base, covered = (coverage_of(run, info) for run, info in zip(runs, infos, strict=True))
    old, new = map(attempts_by_name, runs)
    find = finder(old)
    met: set[str] = set()
    pairs: dict[Category, list[Pair]] = {category: [] for category in CATEGORIES}
    drifted = []
    for now in new.values():
        then = find(now.last)
        if then is not None:
            met.add(then.last.case)
        pair = Pair(then.last if then is not None else None, now.last)
        pairs[_became(then, now)].append(pair)
        outputs = _drift_of(pair.before, now.last, read) if read is not None else ()
        if outputs:
            drifted.append(Drifted(pair, outputs))
    for name, then in old.items():
        if name not in met:
            pairs["vanished" if then.last.has_verdict else "untested"].append(Pair(then.last, None))
    return Comparison(
        pairs,
        covered,
        base,
        drifted,
        files_changed=files_changed(*infos),
        devices_gone=devices_gone(*infos),
        base_versions=_versions(old),
        versions=_versions(new),
        asked_otherwise=tuple(
            name for name in new if name in old and old[name].last.test != new[name].last.test
        ),
    )


def _versions(run: Mapping[str, EarlierAttempts]) -> tuple[str, ...]:
    told = {said_versions(versions_of(one.last)) for one in run.values() if one.last.has_verdict}
    return tuple(sorted(told - {""}))


def settled(found: Comparison, histories: Mapping[str, CaseHistory]) -> Comparison:
    """A comparison in the light of the runs before, by the names of cases now.

    What had no verdict in the base is compared with the last one that it had, if it fails or did.
    What is flaky is that each time, so that it is neither new nor fixed.
    """
    pairs: dict[Category, list[Pair]] = {category: [] for category in CATEGORIES}
    for category, listed in found.pairs.items():
        for pair in listed:
            after = pair.after
            known = histories.get(after.case) if after and after.has_verdict else None
            became, one = (category, pair) if known is None else _settled(category, pair, known)
            pairs[became].append(one)
    flaky = {name: one.state for name, one in histories.items() if one.is_flaky and one.state}
    return replace(found, pairs=pairs, states=flaky)


def _settled(category: Category, pair: Pair, known: CaseHistory) -> tuple[Category, Pair]:
    if known.is_flaky:
        return "flaky", pair
    last = known.last
    if category == "added" and last and (last.last.is_bad or known.now.last.is_bad):
        return _became(last, known.now), Pair(last.last, pair.after)
    if category == "flaky":  # it was, and has ended alike for long
        return "failing" if known.now.last.is_bad else "passing", pair
    return category, pair


def _became(then: EarlierAttempts | None, now: EarlierAttempts) -> Category:
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


def _of_flaky(then: EarlierAttempts, now: EarlierAttempts) -> Category:
    """Tells a way to fail that was not seen before, however flaky the case was."""
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


def _drift_of(before: Attempt | None, after: Attempt, read: Read) -> tuple[Output, ...]:
    found = changes(after, before, read) if before is not None else None
    return tuple(one for one in found or () if one.drifts)


def groups(
    pairs: Iterable[Pair], apart: Callable[[Pair], object] = lambda _: None
) -> list[list[Pair]]:
    """Groups of cases that ended alike, the most frequent first; `apart` divides them further."""
    found: dict[tuple[object, ...], list[Pair]] = {}
    for pair in pairs:
        one = pair.shown
        key = one.outcome, one.signature, one.diagnosis, one.known_issue, apart(pair)
        found.setdefault(key, []).append(pair)
    return sorted(found.values(), key=len, reverse=True)
