"""One axis, step by step: the next question, the finding, and the notes on it."""

import pytest

from harness.bisect.bad_condition import Evidence, Question, RunAnswer
from harness.bisect.result import AxisFinding
from harness.bisect.search import AxisSpec
from harness.bisect.version_search import VersionSearch
from tests.snapshots import Snapshot
from tests.unit.bisect.histories import axis, names

ANSWERS: dict[str, RunAnswer] = {"g": "good", "b": "bad", "n": "untestable"}


def evidence(spec: AxisSpec, answers: str) -> Evidence:
    """Return what is known after answers, a letter for each candidate, `?` for none."""
    known = Evidence()
    for name, letter in zip(spec.candidates, answers, strict=True):
        if letter in ANSWERS:
            known = known.plus((name,), ANSWERS[letter])
    return known


def next_step(spec: AxisSpec, answers: str) -> AxisFinding | Question:
    return VersionSearch(spec, evidence(spec, answers)).next()


FINDINGS: list[tuple[dict[str, str], str, str, str]] = [
    # what was called good is older: asked is what broke it, the newest first
    ({"good": "2.10", "bad": "2.13"}, "gbgb", "change", "2.13"),
    ({"good": "2.13", "bad": "2.10"}, "bgbg", "change", "2.13"),
    ({}, "bgbg", "change", "2.12"),
    ({"bad": "2.12"}, "gbbg", "change", "2.11"),
    ({"good": "2.12"}, "gbgb", "change", "2.13"),
    ({}, "gb", "change", "2.11"),
    ({}, "ggb", "change", "2.12"),
    ({}, "bgg", "change", "2.11"),
    ({}, "gnb", "range", "2.12"),
    ({"good": "2.10", "bad": "2.11"}, "bg", "change", "2.11"),
    ({"good": "2.10", "bad": "2.11"}, "gg", "no-change", ""),
    ({"good": "2.10"}, "nbb", "no-change", ""),
    ({}, "g?g", "no-change", ""),
    ({}, "b", "no-change", ""),
    ({}, "nn", "undecided", ""),
    ({}, "gn", "undecided", ""),
]


def test_findings_and_their_notes(snapshot: Snapshot) -> None:
    lines = []
    for options, answers, kind, after in FINDINGS:
        finding = next_step(axis(len(answers), **options), answers)
        assert (finding.kind, finding.after) == (kind, after), (options, answers)
        claims = "".join(f" {name} {version}" for name, version in options.items())
        lines.append(" | ".join([f"{answers}{claims}: {finding}", *finding.notes]))
    assert lines == snapshot


@pytest.mark.parametrize(
    ("options", "answers", "place"),
    [
        ({}, "???", 0),
        ({}, "g??", 2),
        ({"good": "2.12"}, "???", 2),
        ({"bad": "2.10"}, "???", 0),
        ({"good": "2.12", "bad": "2.10"}, "???", 2),
        ({"good": "2.11"}, "?g?", 2),
        ({"bad": "2.11"}, "?b?", 0),
        ({"bad": "2.11"}, "bb?", 2),
        ({"good": "2.11"}, "?g?b", 2),
        ({}, "g?b", 1),
        ({}, "g????b", 2),
        ({}, "g?g??b", 3),
        # the neighbour of an end that cannot be tested
        ({"good": "2.14", "bad": "2.10"}, "n???g", 1),
        ({"good": "2.14", "bad": "2.10"}, "b???n", 3),
        ({"repeat": 2}, "gbg", 0),
        ({"repeat": 2}, "bgb", 0),
    ],
)
def test_next_question(options: dict[str, object], answers: str, place: int) -> None:
    question = next_step(axis(len(answers), **options), answers)
    assert question.at == (names(9)[place],)
    assert question.number == sum(letter != "?" for letter in answers) + 1
