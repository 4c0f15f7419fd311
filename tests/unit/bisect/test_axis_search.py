"""One axis, step by step: what is asked next, and what is told of it."""

from __future__ import annotations

import pytest

from harness.bisect.driver import VersionSearch
from harness.bisect.match import Evidence, Question, RunAnswer
from harness.bisect.result import AxisFinding
from harness.bisect.search import AxisSpec
from tests.unit.bisect.histories import axis, names

TOLD: dict[str, RunAnswer] = {"g": "good", "b": "bad", "n": "untestable"}


def of(spec: AxisSpec, answers: str) -> AxisFinding | Question:
    """Return the next step after answers, a letter for each candidate."""
    evidence = Evidence()
    for name, letter in zip(spec.candidates, answers, strict=True):
        if letter in TOLD:
            evidence = evidence.plus((name,), TOLD[letter])
    step = VersionSearch(spec, evidence).next()
    assert isinstance(step, AxisFinding | Question)
    return step


@pytest.mark.parametrize(
    ("options", "answers", "text"),
    [
        # what was called good is older: asked is what broke it, the newest first
        (
            {"good": "2.10", "bad": "2.13"},
            "gbgb",
            "last good 2.12, first bad 2.13",
        ),
        (
            {"good": "2.13", "bad": "2.10"},
            "bgbg",
            "last bad 2.12, first good 2.13",
        ),
        (
            {},
            "bgbg",
            "last good 2.11, first bad 2.12",
        ),
        (
            {"bad": "2.12"},
            "gbbg",
            "last good 2.10, first bad 2.11",
        ),
        ({}, "gb", "last good 2.10, first bad 2.11"),
        (
            {"good": "2.12"},
            "gbgb",
            "last good 2.12, first bad 2.13",
        ),
    ],
)
def test_which_change_is_told_first(options: dict[str, str], answers: str, text: str) -> None:
    assert str(of(axis(len(answers), **options), answers)) == text


@pytest.mark.parametrize(
    ("options", "answers", "kind", "verdict", "notes"),
    [
        (
            {},
            "nn",
            "undecided",
            None,
            ("no candidate can be tested", "could not be tested: 2.10, 2.11"),
        ),
        (
            {},
            "gn",
            "undecided",
            "good",
            ("only 2.10 can be tested: it is good", "could not be tested: 2.11"),
        ),
        ({}, "b", "no-change", "bad", ()),
        ({}, "ggb", "change", None, ()),
        (
            {},
            "g?g",
            "no-change",
            "good",
            ("2 of 3 candidates were run; --bad names another",),
        ),
    ],
)
def test_what_is_told_where_no_more_can_be_run(
    options: dict[str, object], answers: str, kind: str, verdict: str | None, notes: tuple[str, ...]
) -> None:
    finding = of(axis(len(answers), **options), answers)
    assert isinstance(finding, AxisFinding)
    assert (finding.kind, finding.verdict, finding.notes) == (kind, verdict, notes)


@pytest.mark.parametrize(
    ("options", "answers", "place", "why"),
    [
        ({}, "???", 0, "the oldest"),
        ({}, "g??", 2, "the newest"),
        ({"good": "2.12"}, "???", 2, "confirm that it is good"),
        ({"bad": "2.10"}, "???", 0, "confirm that it is bad"),
        ({"good": "2.11"}, "?g?", 2, "the newest"),
        ({"bad": "2.11"}, "?b?", 0, "the oldest"),
        ({"bad": "2.11"}, "bb?", 2, "the newest"),
        ({"good": "2.11"}, "?g?b", 2, "splits 2 places where it can have changed"),
        ({}, "g?b", 1, "splits 2 places where it can have changed"),
        ({}, "g????b", 2, "splits 5 places where it can have changed"),
        ({}, "g?g??b", 3, "splits 3 places where it can have changed"),
        ({"repeat": 2}, "gbg", 0, "the oldest"),
        ({"repeat": 2}, "bgb", 0, "the oldest"),
    ],
)
def test_what_is_asked_next_and_why(
    options: dict[str, object], answers: str, place: int, why: str
) -> None:
    question = of(axis(len(answers), **options), answers)
    runs = sum(letter != "?" for letter in answers)
    assert question == Question(at=(names(9)[place],), number=runs + 1, why=why)
