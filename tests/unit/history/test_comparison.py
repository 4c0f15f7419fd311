"""Pairs of runs made by hand, each with the exact answer; and what holds for all pairs."""

import random

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.history.attempts import Attempt
from harness.history.comparison import (
    CATEGORIES,
    Bisectable,
    Category,
    Comparison,
    FailOn,
    Pair,
    compare,
)
from harness.history.comparison_text import lines, view_of
from harness.results.record import PlacementRecord
from tests.unit.history.runs import attempt, briefs

ALL = "new,changed,flaky,vanished,lab,added,drift:0"

# what it was; what it is; what became of each case
PAIRS = {
    "nothing, of nothing": ("", "", ""),
    "passes as it did": ("a passed", "a passed", "passing a"),
    "fails now": ("a passed", "a failed", "new a"),
    "crashes now": ("a passed", "a crashed", "new a"),
    "fails now, as expected": ("a passed", "a failed known=k", "known a"),
    "fails as it did": ("a failed", "a failed", "failing a"),
    "other numbers are the same failure": (
        *("a failed message=step_7_of_0x10", "a failed message=step_9_of_0x4f"),
        "failing a",
    ),
    "another message": ("a failed message=one", "a failed message=other", "changed a"),
    "another outcome": ("a failed", "a crashed", "changed a"),
    "another diagnosis of the same words": ("a failed id=x", "a failed id=y", "changed a"),
    "a diagnosis where no rule knew it": ("a failed", "a failed id=y", "failing a"),
    "a diagnosis that is given no more": ("a failed id=x", "a failed", "failing a"),
    "passes again": ("a failed", "a passed", "fixed a"),
    "a known issue is fixed": ("a failed known=k", "a passed", "fixed a"),
    "fails as expected, as it did": ("a failed known=k", "a failed known=k", "failing a"),
    "is expected to fail so by now": ("a failed", "a failed known=k", "failing a"),
    "nobody expects it any more": ("a failed known=k", "a failed", "new a"),
    "fails differently, as expected": (
        *("a failed message=one", "a failed message=other known=k"),
        "known a",
    ),
    "fails differently than expected": (
        *("a failed message=one known=k", "a failed message=other"),
        "changed a",
    ),
    "not run any more": ("a passed;b passed", "b passed", "vanished a;passing b"),
    "skipped now": ("a passed", "a skipped", "vanished a"),
    "unsupported now": ("a failed", "a unsupported", "vanished a"),
    "not run, and never judged": ("a skipped;b error", "", "untested a b"),
    "a new case that fails": ("", "a failed", "added a"),
    "a new case that is skipped": ("", "a skipped", "untested a"),
    "judged after a skip": ("a skipped", "a failed", "added a"),
    "judged after trouble in the lab": ("a error", "a passed", "added a"),
    "the lab failed": ("a passed", "a error", "lab a"),
    "the input was wrong": ("a failed", "a failed cause=config", "lab a"),
    "the lab failed in a new case": ("", "a error", "lab a"),
    "the lab failed again": ("a error", "a error", "untested a"),
    "the lab failed at first only": ("a passed", "a error;a passed n=2", "passing a"),
    "the lab failed at first, then it fails": ("a passed", "a error;a failed n=2", "new a"),
    "fails at first only": ("a passed", "a failed;a passed n=2", "flaky a"),
    "passes at first only": ("a passed", "a passed;a failed n=2", "flaky a"),
    "was flaky and passes": ("a failed;a passed n=2", "a passed", "flaky a"),
    "was flaky and fails as then": ("a failed;a passed n=2", "a failed", "flaky a"),
    "was flaky and fails differently": ("a failed;a passed n=2", "a crashed", "changed a"),
    "is flaky as it was": ("a failed;a passed n=2", "a failed;a passed n=2", "failing a"),
    "attempts in any order": ("a passed", "a passed n=2;a error n=1", "passing a"),
    "of two first attempts the later one counts": (*("a passed", "a error;a passed"), "passing a"),
    "another version alone": ("a@2.50.40 passed", "a@2.51.0 failed", "new a"),
    "another version of several": (
        *("a@2.50.40 passed;a@2.49.40 passed", "a@2.50.40 passed;a@2.51.0 passed"),
        "passing a;added a;vanished a",
    ),
    "two versions beside the one there was": (
        *("a@2.50.40 passed", "a@2.50.40 passed;a@2.51.0 failed"),
        "passing a;new a",
    ),
    "another engine is another case": (
        *("a passed;b@2.50.40 passed", "a failed engine=ort;b@2.51.0 passed engine=ort"),
        "added a b;vanished a b",
    ),
    "many at once": (
        "a passed;b passed;c failed;d passed;e error;f failed id=x",
        "f failed id=x;d skipped;c passed;b failed;a passed;g passed",
        "passing a;new b;fixed c;vanished d;untested e;failing f;added g",
    ),
}


def became(comparison: Comparison) -> dict[str, list[str]]:
    categories = {
        category: sorted(
            name.rpartition("-")[2].removesuffix("]") for name in comparison.cases(category)
        )
        for category in CATEGORIES
    }
    return {category: names for category, names in categories.items() if names}


@pytest.mark.parametrize("name", PAIRS)
def test_what_became_of_each_case(name: str) -> None:
    before, after, answer = PAIRS[name]
    comparison = compare(briefs(before), briefs(after))
    expected: dict[str, list[str]] = {}
    for part in filter(None, answer.split(";")):
        category, *names = part.split()
        expected[category] = sorted(names)
    assert became(comparison) == expected


outcomes = st.sampled_from(
    ["passed", "failed", "failed known=k", "crashed", "hung", "skipped", "unsupported", "error"]
)
runs = st.dictionaries(st.sampled_from("abcdefgh"), outcomes, max_size=8)


@given(runs, runs, st.randoms(use_true_random=False))
def test_order_does_not_count_and_no_case_is_lost(
    before: dict[str, str], after: dict[str, str], chance: random.Random
) -> None:
    sides = [[f"{name} {ending}" for name, ending in run.items()] for run in (before, after)]
    categories = became(compare(*(briefs(";".join(side)) for side in sides)))
    for side in sides:
        chance.shuffle(side)
    assert became(compare(*(briefs(";".join(side)) for side in sides))) == categories
    assert sorted(name for names in categories.values() for name in names) == sorted(
        {*before, *after}
    )
    itself = compare(*(briefs(";".join(sides[0])) for _ in sides))
    assert set(became(itself)) <= {"passing", "failing", "untested"}
    assert FailOn.parse(ALL).reasons(itself) == []


def test_another_device_or_file_is_another_case() -> None:
    before = [Attempt.of(attempt("a@2.50.40 passed"))]
    for other in ({"device": "phone"}, {"file": "suites/test_c.py"}):
        comparison = compare(before, [Attempt.of(attempt("a@2.51.0 failed", **other))])
        assert became(comparison) == {"added": ["a"], "vanished": ["a"]}


@pytest.mark.parametrize(
    ("fail_on", "reasons"),
    [
        ("new", ["new"]),
        ("new,vanished", ["new", "vanished"]),
        ("vanished, new ,new", ["vanished", "new"]),
        ("changed,flaky", []),
        ("added", []),
        ("drift:1", []),
    ],
)
def test_what_it_fails_on_is_what_was_asked_for(fail_on: str, reasons: list[str]) -> None:
    comparison = compare(briefs("a passed;b passed"), briefs("a failed;c passed"))
    assert FailOn.parse(fail_on).reasons(comparison) == reasons


@pytest.mark.parametrize(
    ("info", "reasons"),
    [
        (None, ["vanished"]),
        ({"selected": 2}, ["vanished"]),
        ({"selected": 3}, []),  # it was not run: nobody knows whether it would have vanished
        ({}, []),  # cut short
    ],
)
def test_what_a_cut_run_has_no_record_of_has_not_vanished(
    info: dict[str, int] | None, reasons: list[str]
) -> None:
    before = briefs("a passed;b passed;c passed")
    criteria = FailOn.parse("vanished")
    comparison = compare(before, briefs("b passed;c passed"), infos=(None, info))
    assert criteria.reasons(comparison) == reasons
    skipped = compare(before, briefs("a skipped;b passed"), infos=(None, {"selected": 9}))
    assert criteria.reasons(skipped) == ["vanished"]


def test_what_was_added_counts_if_it_fails_and_nobody_expects_it() -> None:
    criteria = FailOn.parse("added")
    assert criteria.reasons(compare([], briefs("a failed"))) == ["added"]
    assert criteria.reasons(compare([], briefs("a failed known=k"))) == []


def test_times_of_different_power_profiles_are_not_compared() -> None:
    def ran(power: str | None, qnn: str = "2.51.0", without: str = "") -> list[Attempt]:
        name = f"t.py::test_b[sim-htp-{qnn}{f'-power-{power}' if power else ''}-a]"
        placement = PlacementRecord(
            device="sim", engine="qnn", backend="htp", qnn=qnn, ort=None, compiler=None, power=power
        )
        figures = {"surroundings": {"power": f"{power}{without}"}} if power else {}
        return [
            Attempt.of(attempt("a passed", case=name, placement=placement, measurements=figures))
        ]

    for base, new in ((None, "burst"), ("burst", None), ("burst", "balanced")):
        comparison = compare(ran(base), ran(new, "2.50.40"))
        assert comparison.cases("vanished")
        assert [*comparison.other_power] == comparison.cases("added")
        view = view_of(comparison, (), base="old", run="new")
        assert "1 case had another power profile or other refused votes" in "\n".join(lines(view))
    refused = compare(ran("burst"), ran("burst", without=" without dcvs (1007)"))
    assert [*refused.other_power] == refused.cases("passing")
    comparison = compare(ran("burst"), ran("burst", "2.50.40"))
    assert comparison.cases("passing")
    assert not comparison.other_power


NOTHING_TO_FAIL_ON = ["", "op", "news", "new,,changed", "drift", "failing", "perf", "perf:"]
NOTHING_TO_FAIL_ON += [f"perf:{size}" for size in ("10", "0%", "0.5%", "-5%", "1e3%", "nan%")]


@pytest.mark.parametrize("fail_on", NOTHING_TO_FAIL_ON)
def test_what_is_nothing_to_fail_on_is_refused(fail_on: str) -> None:
    with pytest.raises(ConfigError, match="drift:STEPS"):
        FailOn.parse(fail_on)


def test_alike_failures_are_one_group() -> None:
    comparison = compare(
        briefs("a passed;b passed;c passed;d passed"),
        briefs("a failed message=one;b failed;c failed;d failed id=x"),
    )
    view = view_of(comparison, (), base="old", run="new")
    grouped = [[pair.shown.case[-2] for pair in group.pairs] for group in view.groups["new"]]
    assert grouped == [["b", "c"], ["a"], ["d"]]

    def each_apart(_: Category, pair: Pair) -> Bisectable:
        return Bisectable(hindrance=pair.shown.case)

    apart = view_of(comparison, (), base="old", run="new", bisectable=each_apart)
    assert len(apart.groups["new"]) == 4


def kept_outputs(digest: str) -> dict[str, object]:
    output = {"name": "y", "digest": digest, "data_type": "uint8", "scale": None, "offset": None}
    return {"kept_outputs": {"m": {"sha256": "0", "outputs": [output]}}}


def test_outputs_that_differ_are_told_and_counted_in_steps() -> None:
    files = {"one": bytes([1, 2, 3]), "other": bytes([1, 2, 5])}
    before = [Attempt.of(attempt("a@2.50.40 passed", measurements=kept_outputs("one")))]
    after = [Attempt.of(attempt("a@2.51.0 passed", measurements=kept_outputs("other")))]
    comparison = compare(before, after, files.get)
    (drifted,) = comparison.drifted
    difference = drifted.outputs[0].differences[1]
    assert difference is not None
    assert difference.max_steps == 2
    assert became(comparison) == {"passing": ["a"]}
    assert FailOn.parse("drift:1").reasons(comparison) == ["drift:1"]
    assert FailOn.parse("drift:2").reasons(comparison) == []
    assert not compare(before, before, files.get).drifted
    assert not compare(before, after).drifted
