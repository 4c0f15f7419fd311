"""Several rounds of one thing: what only some of them found wrong may have been noise."""

from __future__ import annotations

import pytest

from harness.experiments.latency import Disturbed, in_doubt, over_rounds, settled
from harness.results.record import Check, held, undecided


def check(name: str, verdict: str, look: int) -> Check:
    if verdict == "unseen":
        return undecided(name, f"look {look}")
    return held(name, verdict == "held", f"look {look}", left_bytes=look)


@pytest.mark.parametrize(
    ("verdicts", "measured", "exact"),
    [
        (("held",), "held", "held"),
        (("unseen",), "unseen", "unseen"),
        (("broken",), "broken", "broken"),
        (("broken", "broken"), "broken", "broken"),
        (("broken", "unseen"), "broken", "broken"),
        (("unseen", "held"), "held", "held"),
        (("broken", "held"), "unseen", "broken"),
        (("held", "broken", "broken"), "unseen", "broken"),
    ],
)
def test_what_looks_say_together(verdicts: tuple[str, ...], measured: str, exact: str) -> None:
    rounds = [
        [check("memory", verdict, look), check("outputs", verdict, look)]
        for look, verdict in enumerate(verdicts)
    ]
    memory, outputs = over_rounds(rounds, {"memory": Disturbed()})
    assert (memory.name, memory.verdict) == ("memory", measured)
    assert (outputs.name, outputs.verdict) == ("outputs", exact)
    if "broken" in verdicts:  # the figures of what was wrong stay
        last = max(look for look, verdict in enumerate(verdicts) if verdict == "broken")
        assert memory.figures == outputs.figures == {"left_bytes": last}
        assert memory.reason.startswith(f"look {last}")
        if memory.verdict == "unseen":
            note = f"; {verdicts.count('held')} of {len(verdicts)} looks found nothing wrong"
            assert memory.reason.endswith(note)


def test_looks_with_other_checks_are_told_apart() -> None:
    rounds = [[check("a", "held", 0)], [check("b", "held", 1), check("a", "unseen", 1)]]
    combined = over_rounds(rounds, {})
    assert [(placement.name, placement.verdict, placement.reason) for placement in combined] == [
        ("b", "held", "look 1"),
        ("a", "held", "look 0"),
    ]


@pytest.mark.parametrize(
    ("verdicts", "rule", "rounds", "expected"),
    [
        (["held"], Disturbed(), 1, "held"),
        (["unseen"], Disturbed(), 1, "unseen"),
        (["broken", "held"], Disturbed(), 2, "unseen"),
        (["broken", "broken"], Disturbed(), 2, "broken"),
        (["broken"] * 3, Disturbed(most=3), 3, "broken"),
        (["noisy", "held"], Disturbed(noisy=True), 2, "held"),
        (["noisy"], Disturbed(), 1, "unseen"),
        (["broken", "held"], Disturbed(lambda rounds: rounds[-1]), 2, "held"),
        (["broken"], None, 1, "broken"),
    ],
)
def test_what_is_in_doubt_is_measured_again(
    verdicts: list[str], rule: Disturbed | None, rounds: int, expected: str
) -> None:
    rounds_before: list[int] = []

    def measure(before: int) -> list[Check]:
        rounds_before.append(before)
        if verdicts[before] == "noisy":
            return [undecided("memory", "noisy", noise=1)]
        return [check("memory", verdicts[before], before)]

    rules = {"memory": rule} if rule is not None else {}
    (check_of_all,) = settled(measure, rules)
    assert (rounds_before, check_of_all.verdict) == (list(range(rounds)), expected)
    assert not in_doubt([[check_of_all]] * 9, rules)
