"""No rule of the verdict is idle: without it, or in another order, a row of the tables fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from harness.diagnosis.verdict import BLAME, ENDINGS, Blame, ProcessEnding, judge
from tests.unit.diagnosis import test_verdict
from tests.unit.diagnosis.probe_runs import DONE, START, begin, end, run

ENDED = [(run(*said, **how), *expected) for said, how, *expected in test_verdict.ENDINGS]
OWN = [
    (
        run(START, begin(), end(code=None, error=error, message=message), DONE, exit_code=1),
        *expected,
    )
    for error, message, *expected in test_verdict.OWN
]


def wrong_endings(endings: Sequence[ProcessEnding]) -> int:
    """How many rows other endings judge wrongly."""
    wrong = 0
    for seen, outcome, cause, text in ENDED:
        made = judge(seen, endings=endings)
        message = made.error.message if made.error else ""
        wrong += (made.outcome, made.cause) != (outcome, cause) or text not in message
    return wrong


def wrong_blame(blame: Sequence[Blame]) -> int:
    """How many rows other blame judges wrongly."""
    made = [judge(seen, blame=blame) for seen, *_ in OWN]
    found = [(verdict.outcome, verdict.cause) for verdict in made]
    return sum(
        one != (outcome, cause) for one, (_, outcome, cause, _) in zip(found, OWN, strict=True)
    )


def test_nothing_is_wrong_as_it_is() -> None:
    assert wrong_endings(ENDINGS) == wrong_blame(BLAME) == 0


@pytest.mark.parametrize("index", range(len(ENDINGS)), ids=[one.name for one in ENDINGS])
def test_without_an_ending_a_row_fails(index: int) -> None:
    assert wrong_endings([*ENDINGS[:index], *ENDINGS[index + 1 :]])


def competing() -> list[tuple[int, int]]:
    """Pairs of endings that hold for the same process, the first of which decides."""
    found = set()
    for seen, *_ in ENDED:
        holding = [index for index, ending in enumerate(ENDINGS) if ending.applies(seen)]
        found |= {pair for pair in combinations(holding, 2) if pair[0] == holding[0]}
    return sorted(found)


@pytest.mark.parametrize(
    ("first", "second"),
    competing(),
    ids=[f"{ENDINGS[a].name}-before-{ENDINGS[b].name}" for a, b in competing()],
)
def test_the_order_of_two_endings_decides(first: int, second: int) -> None:
    swapped = list(ENDINGS)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    assert wrong_endings(swapped)


@pytest.mark.parametrize("index", range(len(BLAME)), ids=[f"{b.error}-{b.cause}" for b in BLAME])
def test_without_a_rule_of_blame_a_row_fails(index: int) -> None:
    assert wrong_blame([*BLAME[:index], *BLAME[index + 1 :]])


@pytest.mark.parametrize("index", [i for i, one in enumerate(BLAME) if one.text])
def test_without_its_text_a_rule_of_blame_takes_too_much(index: int) -> None:
    assert wrong_blame([*BLAME[:index], replace(BLAME[index], text=""), *BLAME[index + 1 :]])
