"""All attempts at each case of a run, and the same case in another run (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from harness.history.brief import Brief
from harness.qnn.axes import VERSIONS
from harness.results.case_names import NamedPlacement, split_node_id

_APART: Final = {*VERSIONS, "engine"}


@dataclass(slots=True)
class Attempts:
    """All attempts at a case in one run: the last of them, and whether others ended otherwise."""

    last: Brief
    passed: bool = False
    failures: frozenset[tuple[str, str]] = frozenset()

    def add(self, brief: Brief) -> None:
        """Takes note of one, in any order."""
        if brief.attempt >= self.last.attempt:
            self.last = brief
        if brief.has_verdict and brief.is_bad:
            alone = _alone(*_failure(brief))
            self.failures = self.failures | alone if self.failures else alone
        elif brief.has_verdict:
            self.passed = True

    @property
    def is_flaky(self) -> bool:
        """Whether it both passed and failed."""
        return self.passed and bool(self.failures)


def attempts_by_name(briefs: Iterable[Brief]) -> dict[str, Attempts]:
    """The attempts of one run by their cases' names."""
    found: dict[str, Attempts] = {}
    for brief in briefs:
        found.setdefault(brief.case, Attempts(brief)).add(brief)
    return found


def finder(run: Mapping[str, Attempts]) -> Callable[[Brief], Attempts | None]:
    """Finds a case of another run in this one: that of its name, or the only one that differs in
    its versions alone. With another engine it is another case.
    """

    @cache
    def known() -> Mapping[tuple[object, ...], list[Attempts]]:
        """Made when it is first needed: most runs have the same names."""
        found: dict[tuple[object, ...], list[Attempts]] = {}
        for one in run.values():
            found.setdefault(without_versions(one.last), []).append(one)
        return found

    def find(brief: Brief) -> Attempts | None:
        named = run.get(brief.case)
        if named is not None:
            return named if named.last.may_be(brief) else None
        found = known().get(without_versions(brief), [])
        found = [one for one in found if one.last.may_be(brief)]
        return found[0] if len(found) == 1 else None

    return find


def without_versions(brief: Brief) -> tuple[object, ...]:
    """What a case shares with the same case of other versions, besides its engine."""
    base, parameters = split_node_id(brief.case)
    named = NamedPlacement.beginning(parameters or "")
    axes = tuple(sorted((k, str(v)) for k, v in brief.axes.items() if k not in _APART))
    return base, axes, named.device if named else None


def same_failure(before: Brief, after: Brief) -> bool:
    """Whether two attempts failed with one outcome and one signature."""
    return before.is_bad and _failure(before) == _failure(after)


@lru_cache(1000)
def _alone(*failure: str) -> frozenset[tuple[str, str]]:
    """A set of one failure, which many cases share."""
    return frozenset([(failure[0], failure[1])])


def _failure(brief: Brief) -> tuple[str, str]:
    return brief.outcome, brief.signature
