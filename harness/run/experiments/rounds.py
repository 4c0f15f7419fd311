"""What other processes can disturb is measured again, and what all rounds come to together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.verdict.results.checks import Check, undecided


def strict(rounds: Sequence[Check]) -> Check:
    """What broke once is broken; else what held once holds. The last round that says so counts."""
    broken = [check for check in rounds if check.verdict == "broken"]
    return (broken or [check for check in rounds if check.verdict == "held"] or rounds)[-1]


def agreed(rounds: Sequence[Check]) -> Check:
    """Broken if each round that could tell broke it; rounds that differ decide nothing."""
    told, kept = strict(rounds), [check for check in rounds if check.verdict == "held"]
    if told.verdict != "broken" or not kept:
        return told
    why = f"{told.reason}; {len(kept)} of {len(rounds)} looks found nothing wrong"
    return undecided(told.name, why, **told.figures)


@dataclass(frozen=True)
class Disturbed:
    """How a check is taken that other processes can make wrong.

    It is measured at most `most` times: while it is broken, and if it is `noisy`, also while its
    figures decide nothing. `together` says what its rounds come to.
    """

    together: Callable[[Sequence[Check]], Check] = agreed
    most: int = 2
    noisy: bool = False

    def doubts(self, check: Check) -> bool:
        """Whether another round may come to another answer."""
        unsure = check.verdict == "unseen" and bool(check.figures)
        return check.verdict == "broken" or (self.noisy and unsure)


Rules = Mapping[str, Disturbed]
"""By the names of checks; any other is not measured again for its own sake, and is `strict`."""


def settled(measure: Callable[[int], list[Check]], rules: Rules) -> list[Check]:
    """What rounds come to; `measure` makes a round, and is told how many were before it."""
    rounds = [measure(0)]
    while in_doubt(rounds, rules):
        rounds.append(measure(len(rounds)))
    return over_rounds(rounds, rules)


def in_doubt(rounds: Sequence[Sequence[Check]], rules: Rules) -> bool:
    """Whether another round may come to another answer than these."""
    last = [(check, rules[check.name]) for check in rounds[-1] if check.name in rules]
    return any(len(rounds) < rule.most and rule.doubts(check) for check, rule in last)


def over_rounds(rounds: Sequence[Sequence[Check]], rules: Rules) -> list[Check]:
    """For each check of the last round what all rounds together say of it."""
    found = []
    for name in (check.name for check in rounds[-1]):
        together = rules[name].together if name in rules else strict
        found.append(together([one for checks in rounds for one in checks if one.name == name]))
    return found
