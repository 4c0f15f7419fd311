"""One axis, step by step: what is asked next, and what is told of it."""

from __future__ import annotations

import pytest

from harness.bisect.answers import Answer, Question
from harness.bisect.axis_search import AxisSearch
from harness.bisect.search import AxisSpec
from tests.unit.bisect.histories import axis, names


def asked(spec: AxisSpec, answers: str, dear: str = "") -> Question:
    """The question after these answers; `dear` are the candidates that cost much."""
    search = AxisSearch(spec, cost=lambda at: 1e6 if at[0] in dear.split() else 1.0)
    told: dict[str, Answer] = {"g": "good", "b": "bad", "n": "untestable"}
    for letter in answers:
        question = search.next()
        assert isinstance(question, Question), question
        search.answer(question, told[letter])
    question = search.next()
    assert isinstance(question, Question), question
    return question


@pytest.mark.parametrize(
    ("answers", "gaps", "dear", "at"),
    [
        # before the one and behind the other lies a quarter of what is likely
        ("gb", (1, 1, 1, 0.5, 0.5), "2.12 2.14", "2.13"),
        ("gb", (0.5, 0.5, 1, 1, 1), "2.11 2.13", "2.12"),
        ("gbg", (1, 1, 1, 1, 1, 1, 1, 0.5, 0.5), "2.16 2.18", "2.17"),
        ("gbb", (0.5, 0.5, 1, 1, 1, 1, 1, 1, 1), "2.11 2.13", "2.12"),
    ],
)
def test_of_two_that_tell_as_much_the_one_near_the_middle_is_run(
    answers: str, gaps: tuple[float, ...], dear: str, at: str
) -> None:
    prior = dict(zip(names(len(gaps) + 1)[1:], gaps, strict=True))
    assert asked(axis(len(gaps) + 1, prior=prior), answers, dear).at == (at,)
