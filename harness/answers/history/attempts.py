"""All attempts at each case of a run, and the same case in another run (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from harness.answers.history.brief import Brief


@dataclass(slots=True)
class EarlierAttempts:
    """All attempts at a case in one run: the last of them, and whether others ended otherwise.

    It `passed` and `failed` so often; `bad` is one that failed, the last of them. `begun` is when
    the first of them was. `at` is the place of the run among those that are looked at.
    """

    last: Brief
    passed: int = 0
    failed: int = 0
    failures: frozenset[tuple[str, str]] = frozenset()
    bad: Brief | None = None
    at: int = -1
    begun: str = ""

    def add(self, brief: Brief) -> None:
        """Takes note of one, in any order."""
        self.begun = min(self.begun or brief.started, brief.started)
        if brief.attempt >= self.last.attempt:
            self.last = brief
        if brief.has_verdict and brief.is_bad:
            alone = _alone(*_failure(brief))
            self.failures = self.failures | alone if self.failures else alone
            self.failed += 1
            if self.bad is None or brief.attempt >= self.bad.attempt:
                self.bad = brief
        elif brief.has_verdict:
            self.passed += 1

    @property
    def is_flaky(self) -> bool:
        """Whether it both passed and failed."""
        return bool(self.passed and self.failed)


def attempts_by_name(briefs: Iterable[Brief], at: int = -1) -> dict[str, EarlierAttempts]:
    """The attempts of one run by their cases' names; `at` is its place."""
    found: dict[str, EarlierAttempts] = {}
    for brief in briefs:
        found.setdefault(brief.case, EarlierAttempts(brief, at=at)).add(brief)
    return found


def finder(run: Mapping[str, EarlierAttempts]) -> Callable[[Brief], EarlierAttempts | None]:
    """Finds a case of another run in this one: the case of its name, or the only case that differs
    in its versions alone. With another engine it is another case.
    """

    @cache
    def known() -> Mapping[str, list[EarlierAttempts]]:
        """Made when it is first needed: most runs have the same names."""
        found: dict[str, list[EarlierAttempts]] = {}
        for one in run.values():
            found.setdefault(one.last.kin, []).append(one)
        return found

    def find(brief: Brief) -> EarlierAttempts | None:
        named = run.get(brief.case)
        if named is not None:
            return named if named.last.may_be(brief) else None
        found = [one for one in known().get(brief.kin, []) if one.last.may_be(brief)]
        return found[0] if len(found) == 1 else None

    return find


def same_failure(before: Brief, after: Brief) -> bool:
    """Whether two attempts failed with one outcome and one signature."""
    return before.is_bad and _failure(before) == _failure(after)


@lru_cache(1000)
def _alone(*failure: str) -> frozenset[tuple[str, str]]:
    """A set of one failure, which many cases share."""
    return frozenset([(failure[0], failure[1])])


def _failure(brief: Brief) -> tuple[str, str]:
    return brief.outcome, brief.signature
