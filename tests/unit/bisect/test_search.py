"""One axis, exact answers: against brute force, whatever cannot be tested, however it is asked."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.bisect.driver import VersionSearch
from harness.bisect.match import Evidence, Question, RunAnswer, Stopped
from harness.bisect.result import AxisFinding
from harness.bisect.search import (
    PATIENCE,
    AxisSpec,
    CornerSpec,
)
from tests.properties import reached, reaches
from tests.unit.bisect.histories import axis, changing, corners, drive, names

FIRST: tuple[RunAnswer, ...] = ("good", "bad")


@pytest.mark.parametrize("number", range(1, 10))
def test_every_history_within_the_bound(number: int) -> None:
    for k, first in itertools.product(range(number + 1), FIRST):
        finding, points = drive(VersionSearch(axis(number)), changing(number, k, first))
        assert len(points) == finding.runs <= math.ceil(math.log2(number)) + 2
        assert len(points) <= axis(number).most_runs
        if 0 < k < number:
            order = names(number)
            assert (finding.kind, finding.before, finding.after) == (
                "change",
                order[k - 1],
                order[k],
            )
            assert finding.direction == ("regression" if first == "good" else "fix")
        else:
            assert finding.kind == "no-change"


@pytest.mark.parametrize("number", range(2, 8))
def test_every_history_with_every_placement_of_untestable(number: int) -> None:
    order = names(number)
    for size, k, first in itertools.product(range(1, number + 1), range(number + 1), FIRST):
        for holes in map(frozenset, itertools.combinations(range(number), size)):
            search = VersionSearch(axis(number))
            finding, points = drive(search, changing(number, k, first, holes))
            testable = [i for i in range(number) if i not in holes]
            older = [i for i in testable if i < k]
            newer = [i for i in testable if i >= k]
            wasted = sum(order.index(point[0]) in holes for point in points)
            assert len(points) == len(set(points)) <= search.spec.most_runs + wasted
            if older and newer:
                assert (finding.before, finding.after) == (order[older[-1]], order[newer[0]])
                assert finding.between == order[older[-1] + 1 : newer[0]]
                assert finding.kind == ("range" if finding.between else "change")
            elif len(testable) > 1:
                assert finding.kind == "no-change"
                assert set(finding.between) <= {order[i] for i in holes}
            else:
                assert finding.kind == "undecided"


@reaches(0.35)
@given(st.data())
def test_any_claims_and_repeats(data: st.DataObject) -> None:
    number = data.draw(st.integers(2, 40))
    order = names(number)
    k = data.draw(st.integers(1, number - 1))
    first = data.draw(st.sampled_from(FIRST))
    holes = data.draw(st.frozensets(st.integers(0, number - 1), max_size=number // 2))
    claimed = data.draw(st.sampled_from([None, "good", "bad"]))
    repeat = data.draw(st.integers(1, 3))
    claim = {} if claimed is None else {claimed: data.draw(st.sampled_from(order))}
    spec = axis(number, repeat=repeat, **claim)
    search = VersionSearch(spec)
    finding, points = drive(search, changing(number, k, first, holes))
    wasted = sum(order.index(point[0]) in holes for point in points)
    assert len(points) <= search.spec.most_runs + wasted
    older = [i for i in range(k) if i not in holes]
    newer = [i for i in range(k, number) if i not in holes]
    if older and newer:
        reached()
        assert (finding.before, finding.after) == (order[older[-1]], order[newer[0]])
        assert finding.between == order[older[-1] + 1 : newer[0]]


@pytest.mark.parametrize(("claim", "end"), [({"good": "2.12"}, "2.18"), ({"bad": "2.16"}, "2.10")])
def test_one_claim_within_is_confirmed_first_and_then_where_it_is_to_differ(
    claim: dict[str, str], end: str
) -> None:
    """A claimed bad version was good before: the search looks for what broke it."""
    finding, points = drive(VersionSearch(axis(9, **claim)), changing(9, 5))
    assert [point[0] for point in points[:2]] == [*claim.values(), end]
    assert len({point[0] for point in points} & {"2.10", "2.18"}) == 1
    assert (finding.last_good, finding.first_bad) == ("2.14", "2.15")
    for n, k, claimed in itertools.product(range(2, 15), range(1, 15), range(15)):
        if k < n and claimed < n:
            claim = {"good" if claimed < k else "bad": names(n)[claimed]}
            finding, points = drive(VersionSearch(axis(n, **claim)), changing(n, k))
            assert finding.after == names(n)[k]
            assert len(points) <= math.ceil(math.log2(n)) + 2


def test_only_what_lies_between_two_claims_is_searched() -> None:
    finding, points = drive(
        VersionSearch(axis(20, good="2.15", bad="2.12")), changing(20, 4, "bad")
    )
    assert all("2.12" <= point[0] <= "2.15" for point in points)
    assert points[0] == ("2.15",)
    assert (finding.direction, finding.last_bad, finding.first_good) == (
        "fix",
        "2.13",
        "2.14",
    )
    assert finding.notes == (
        "older versions are bad and newer ones good: this version fixed it, or is the oldest "
        "that can run the case",
    )


def test_a_claim_between_ends_that_are_alike_finds_what_broke_it() -> None:
    for n, start, end in itertools.product(range(3, 17), range(1, 17), range(1, 17)):
        if not start < end < n:
            continue
        order = names(n)
        search = VersionSearch(axis(n, bad=order[(start + end) // 2]))
        world = {o: "bad" if start <= i < end else "good" for i, o in enumerate(order)}
        finding, points = drive(search, lambda point, world=world: world[point[0]])  # type: ignore[misc]
        assert len(points) <= search.spec.most_runs
        assert (finding.kind, finding.last_good) == ("change", order[start - 1])


def test_a_change_back_is_told_behind_what_broke_it() -> None:
    bad = {"2.13", "2.14"}
    spec = axis(9, good="2.12")
    finding, _ = drive(VersionSearch(spec), lambda point: "bad" if point[0] in bad else "good")
    assert (finding.kind, finding.verdict) == ("no-change", "good")
    assert finding.notes == ("3 of 9 candidates were run; --bad names another",)
    spec = axis(9, good="2.14")
    finding, _ = drive(VersionSearch(spec), lambda point: "good" if point[0] in bad else "bad")
    assert str(finding) == "last good 2.14, first bad 2.15"
    spec = axis(9, good="2.15", bad="2.12")
    finding, _ = drive(VersionSearch(spec), lambda point: "good" if point[0] in bad else "bad")
    assert "2.15 was said to be good, and is bad" in finding.notes
    spec = axis(9, bad="2.13")
    finding, _ = drive(VersionSearch(spec), lambda point: "bad" if point[0] in bad else "good")
    assert str(finding) == "last good 2.12, first bad 2.13"


def test_no_change_names_what_could_not_be_tested() -> None:
    holes = frozenset({0, 1, 2})
    finding, _ = drive(
        VersionSearch(axis(5, good="2.10", bad="2.14")), changing(5, 3, "good", holes)
    )
    assert str(finding) == (
        "no change: all that could be tested are bad; undecided: 2.10, 2.11, 2.12"
    )
    assert finding.between == ("2.10", "2.11", "2.12")
    assert "2.10 was said to be good, and cannot be tested" in finding.notes
    exact, _ = drive(VersionSearch(axis(5)), changing(5, 5))
    assert (str(exact), exact.between) == ("no change: all 2 that were run are good", ())


@pytest.mark.parametrize("spec", [axis(4), corners(3, 3)])
def test_trouble_is_asked_again_and_stops_in_a_row(spec: AxisSpec | CornerSpec) -> None:
    search = VersionSearch(spec)
    first = search.next()
    assert isinstance(first, Question)
    for _ in range(PATIENCE):
        assert search.next() == first
        search.answer(first, "unknown")
    assert search.next() == Stopped(PATIENCE, first)
    search.resume()
    assert search.next() == first
    if isinstance(spec, AxisSpec):
        finding, points = drive(search, changing(4, 2))
        assert (finding.after, finding.runs, len(points)) == ("2.12", 4, 4)
        assert finding.unknown == PATIENCE


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"good": "9"}, "good: '9' is not one"),
        ({"good": "2.10", "bad": "2.10"}, "cannot be good and bad"),
        ({"repeat": 0}, "repeat"),
        ({"repeat": 1001}, "repeat"),
        ({"repeat": "auto"}, "repeat"),
        ({"untestable": ["2.10"]}, "untestable"),
        ({"candidates": ("x" * 201,)}, "at most 200 characters"),
        ({"candidates": ("",)}, "at least 1 character"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AxisSpec.model_validate(axis(3).model_dump() | options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"candidates": (("1", "1"), ("2",))}, "qnn: 1 listed twice"),
        ({"axes": ("qnn", "qnn")}, "both axes are 'qnn'"),
        ({"good": ("2.10", "1.29")}, "good: '1.29' is not one of the candidates of ort"),
        ({"bad": ("2.10", "1.21")}, "qnn is '2.10' in the good and in the bad pair"),
        ({"good": ("2.10",)}, "good"),
        ({"candidates": (names(1001), ("1.20", "1.21"))}, "at most 1000 items"),
    ],
)
def test_corners_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CornerSpec.model_validate(corners(2, 2).model_dump() | options)


def test_limits_and_defaults_of_a_spec() -> None:
    assert axis(1000, repeat=1000).most_runs == 12_000
    assert list(axis(2).points()) == [("2.10",), ("2.11",)]
    single = axis(1)
    assert AxisSpec.model_validate(vars(single)) == single
    assert single.repeat == 1
    with pytest.raises(ValueError, match="frozen"):
        single.repeat = 4


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        (axis(1), 1),
        (axis(2), 2),
        (axis(9), 5),
        (axis(17), 6),
        (axis(17, good="2.12"), 7),
        (axis(17, good="2.10"), 6),
        (axis(17, bad="2.26"), 6),
        (axis(30, bad="2.12", good="2.28"), 6),
        (axis(17, repeat=2), 12),
        (corners(2, 2), 4),
        (corners(9, 3), 8),
        (corners(9, 3, good=("2.12", "1.20"), bad=("2.16", "1.22")), 7),
        (corners(9, 3, repeat=2), 16),
    ],
)
def test_how_many_runs_a_search_may_take(spec: AxisSpec | CornerSpec, most: int) -> None:
    assert spec.most_runs == most


def test_the_lab_need_not_be_seen_to_for_what_was_found() -> None:
    search = VersionSearch(axis(2), Evidence(troubles=PATIENCE))
    assert isinstance(search.next(), Stopped)
    evidence = Evidence().plus(("2.10",), "good").plus(("2.11",), "bad")
    evidence = replace(evidence, troubles=PATIENCE)
    assert isinstance(VersionSearch(axis(2), evidence).next(), AxisFinding)


def test_a_single_candidate_has_its_verdict_and_nothing_to_change() -> None:
    for verdict in ("good", "bad"):
        finding, points = drive(VersionSearch(axis(1, repeat=2)), lambda _, answer=verdict: answer)
        assert (finding.kind, finding.verdict, len(points)) == ("no-change", verdict, 2)
        assert str(finding) == f"{names(1)[0]} is {verdict}"
