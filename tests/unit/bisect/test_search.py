"""One axis, exact answers: against brute force, whatever cannot be tested, however it is asked."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from harness.bisect.bad_condition import Evidence, Question, RunAnswer, Stopped
from harness.bisect.result import AxisFinding
from harness.bisect.search import PATIENCE, AxisSpec, CornerSpec
from harness.bisect.version_search import VersionSearch
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
    assert (finding.direction, finding.last_bad, finding.first_good) == ("fix", "2.13", "2.14")


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
    ("options", "field"),
    [
        ({"good": "9"}, ()),
        ({"good": "2.10", "bad": "2.10"}, ()),
        ({"repeat": 0}, ("repeat",)),
        ({"repeat": 1001}, ("repeat",)),
        ({"untestable": ["2.10"]}, ("untestable",)),
        ({"candidates": ("x" * 201,)}, ("candidates", 0)),
        ({"candidates": ("",)}, ("candidates", 0)),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(
    options: dict[str, object], field: tuple[str | int, ...]
) -> None:
    with pytest.raises(ValidationError) as refusal:
        AxisSpec.model_validate(axis(3).model_dump() | options)
    assert refusal.value.errors()[0]["loc"] == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"candidates": (("1", "1"), ("2",))}, ()),
        ({"axes": ("qnn", "qnn")}, ()),
        ({"good": ("2.10", "1.29")}, ()),
        ({"bad": ("2.10", "1.21")}, ()),
        ({"good": ("2.10",)}, ("good", 1)),
        ({"candidates": (names(1001), ("1.20", "1.21"))}, ("candidates", 0)),
    ],
)
def test_corners_that_make_no_sense_are_refused(
    options: dict[str, Any], field: tuple[str | int, ...]
) -> None:
    with pytest.raises(ValidationError) as refusal:
        CornerSpec.model_validate(corners(2, 2).model_dump() | options)
    assert refusal.value.errors()[0]["loc"] == field


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        (axis(1), 1),
        (axis(9), 5),
        (axis(17), 6),
        (axis(17, good="2.12"), 7),
        (axis(17, bad="2.26"), 6),
        (axis(30, bad="2.12", good="2.28"), 6),
        (axis(17, repeat=2), 12),
        (axis(1000, repeat=1000), 12_000),
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
