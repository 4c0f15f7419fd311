"""Several rounds of one measurement: failures that only some of them show may be noise."""

from __future__ import annotations

import pytest

from harness.experiments.latency import settled
from harness.results.record import Check, held, undecided


def check(name: str, verdict: str, number: int) -> Check:
    if verdict == "unseen":
        return undecided(name, f"round {number}")
    if verdict == "noisy":
        return undecided(name, f"round {number}", noise=1)
    return held(name, verdict == "held", f"round {number}", left_bytes=number)


@pytest.mark.parametrize(
    ("verdicts", "most", "rounds", "expected"),
    [
        (["held"], 2, 1, "held"),
        (["unseen"], 2, 1, "unseen"),
        (["broken", "held"], 2, 2, "held"),
        (["broken", "unseen"], 2, 2, "unseen"),
        (["broken", "broken"], 2, 2, "broken"),
        (["broken"] * 3, 3, 3, "broken"),
        (["noisy", "held"], 2, 2, "held"),
        (["noisy", "broken"], 2, 2, "broken"),
        (["broken"], None, 1, "broken"),
        (["noisy"], None, 1, "unseen"),
    ],
)
def test_a_check_in_doubt_is_measured_again(
    verdicts: list[str], most: int | None, rounds: int, expected: str
) -> None:
    rounds_before: list[int] = []

    def measure(before: int) -> list[Check]:
        rounds_before.append(before)
        return [check("memory", verdicts[before], before)]

    (combined,) = settled(measure, {} if most is None else {"memory": most})
    assert (rounds_before, combined.verdict) == (list(range(rounds)), expected)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (("broken", "held"), "broken"),
        (("held", "unseen"), "held"),
        (("unseen", "unseen"), "unseen"),
    ],
)
def test_a_check_that_nobody_disturbs_is_broken_by_one_round(
    outputs: tuple[str, str], expected: str
) -> None:
    def measure(before: int) -> list[Check]:
        memory = check("memory", ("broken", "held")[before], before)
        return [memory, check("outputs", outputs[before], before)]

    memory, exact = settled(measure, {"memory": 2})
    assert (memory.verdict, memory.reason) == ("held", "round 1")
    assert (exact.name, exact.verdict) == ("outputs", expected)
