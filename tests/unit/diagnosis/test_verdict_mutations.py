"""No rule of the verdict is idle: without it, or in another order, a row of the tables fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from harness.diagnosis.verdict import BLAME, ENDINGS, Blame, ProcessEnding, judge
from tests.unit.diagnosis import test_verdict
from tests.unit.diagnosis.probe_runs import DONE, START, begin, end, run

ENDED = [
    (run(*events, **options), *expected) for events, options, *expected in test_verdict.ENDINGS
]
OWN = [
    (
        run(START, begin(), end(code=None, error=error, message=message), DONE, exit_code=1),
        *expected,
    )
    for error, message, *expected in test_verdict.OWN
]


def wrong_endings(endings: Sequence[ProcessEnding]) -> int:
    """Count the rows that other endings judge wrongly."""
    wrong = 0
    for probe_run, outcome, cause, text in ENDED:
        verdict = judge(probe_run, endings=endings)
        message = verdict.error.message if verdict.error else ""
        wrong += (verdict.outcome, verdict.cause) != (outcome, cause) or text not in message
    return wrong


def wrong_blame(blame: Sequence[Blame]) -> int:
    """Count the rows that other blame judges wrongly."""
    verdicts = [judge(probe_run, blame=blame) for probe_run, *_ in OWN]
    results = [(verdict.outcome, verdict.cause) for verdict in verdicts]
    return sum(
        entry != (outcome, cause)
        for entry, (_, outcome, cause, _) in zip(results, OWN, strict=True)
    )


def test_nothing_is_wrong_as_it_is() -> None:
    assert wrong_endings(ENDINGS) == wrong_blame(BLAME) == 0


@pytest.mark.parametrize("index", range(len(ENDINGS)))
def test_without_an_ending_a_row_fails(index: int) -> None:
    assert wrong_endings([*ENDINGS[:index], *ENDINGS[index + 1 :]])


def competing() -> list[tuple[int, int]]:
    """Pairs of endings that hold for the same process, the first of which decides."""
    pairs = set()
    for probe_run, *_ in ENDED:
        holding = [index for index, ending in enumerate(ENDINGS) if ending.applies(probe_run)]
        pairs |= {pair for pair in combinations(holding, 2) if pair[0] == holding[0]}
    return sorted(pairs)


@pytest.mark.parametrize(("first", "second"), competing())
def test_the_order_of_two_endings_decides(first: int, second: int) -> None:
    swapped = list(ENDINGS)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    assert wrong_endings(swapped)


@pytest.mark.parametrize("index", range(len(BLAME)), ids=[f"{b.error}-{b.cause}" for b in BLAME])
def test_without_a_rule_of_blame_a_row_fails(index: int) -> None:
    assert wrong_blame([*BLAME[:index], *BLAME[index + 1 :]])


@pytest.mark.parametrize("index", [i for i, blame in enumerate(BLAME) if blame.text])
def test_without_its_text_a_rule_of_blame_takes_too_much(index: int) -> None:
    assert wrong_blame([*BLAME[:index], replace(BLAME[index], text=""), *BLAME[index + 1 :]])
