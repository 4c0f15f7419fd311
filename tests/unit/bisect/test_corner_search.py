"""Two axes: the corners, and the search of each axis that matters with the other held."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from harness.bisect.bad_condition import Evidence, Point, Question, RunAnswer
from harness.bisect.result import CornersFinding
from harness.bisect.search import CornerSpec
from harness.bisect.version_search import VersionSearch
from tests.snapshots import Snapshot
from tests.unit.bisect.histories import corners, drive


def found_in(finding: CornersFinding) -> dict[str, tuple[dict[str, str], str, str]]:
    """Of each axis that was searched: what was held, and the versions around the change."""
    return {
        search.axis: (search.held, search.answer.before, search.answer.after)
        for search in finding.searches
    }


def ways(spec: CornerSpec) -> list[CornerSpec]:
    """The same question with each axis either way: the good version may be the newer one."""
    (old_qnn, old_ort), (new_qnn, new_ort) = spec.good, spec.bad
    ends = [
        ((old_qnn, old_ort), (new_qnn, new_ort)),
        ((new_qnn, old_ort), (old_qnn, new_ort)),
        ((old_qnn, new_ort), (new_qnn, old_ort)),
        ((new_qnn, new_ort), (old_qnn, old_ort)),
    ]
    return [spec.model_copy(update={"good": good, "bad": bad}) for good, bad in ends]


def towards_bad(spec: CornerSpec, point: Point) -> tuple[int, int]:
    """Return how many steps a pair lies from the good end of each axis."""
    steps = []
    for place, names in enumerate(spec.candidates):
        start = names.index(spec.good[place])
        steps.append(abs(names.index(point[place]) - start))
    return steps[0], steps[1]


CAUSES: dict[str, Callable[[bool, bool], bool]] = {
    "both": lambda qnn, ort: qnn and ort,
    "either": lambda qnn, ort: qnn or ort,
    "qnn": lambda qnn, ort: qnn,
    "ort": lambda qnn, ort: ort,
}


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("shape", [(2, 2), (5, 4), (9, 2)])
def test_every_cause_wherever_it_is_and_whichever_way(cause: str, shape: tuple[int, int]) -> None:
    for spec in ways(corners(*shape)):
        for first, second in itertools.product(range(1, shape[0]), range(1, shape[1])):

            def world(point: Point, first: int = first, second: int = second) -> RunAnswer:
                qnn, ort = towards_bad(spec, point)  # noqa: B023
                return "bad" if CAUSES[cause](qnn >= first, ort >= second) else "good"

            finding, points = drive(VersionSearch(spec), world)
            assert (finding.kind, finding.fails_with) == ("change", cause)
            assert len(points) == len(set(points)) == finding.runs <= spec.most_runs
            assert points[:2] == [spec.good, spec.bad]
            assert set(found_in(finding)) == ({"qnn", "ort"} & {cause} or {"qnn", "ort"})
            held_at = spec.bad if cause == "both" else spec.good
            for search in finding.searches:
                place = spec.axes.index(search.axis)
                other = spec.axes[1 - place]
                assert search.held == {other: held_at[1 - place]}
                point = finding.point(search, search.answer.after)
                change = search.answer
                bad = change.first_bad or change.last_bad
                steps = towards_bad(spec, finding.point(search, bad))[place]
                assert steps == (first, second)[place]
                assert point[1 - place] == held_at[1 - place]


def test_the_answer_in_words(snapshot: Snapshot) -> None:
    """Only a new ORT on an old QNN fails: each axis is searched with the other at its bad end."""
    spec = corners(2, 2, good=("2.11", "1.20"), bad=("2.10", "1.21"))
    finding, points = drive(
        VersionSearch(spec), lambda point: "bad" if point == spec.bad else "good"
    )
    assert points == [("2.11", "1.20"), ("2.10", "1.21"), ("2.10", "1.20"), ("2.11", "1.21")]
    assert finding.text == snapshot
    assert [(corner.at, corner.verdict) for corner in finding.corners] == [
        (("2.11", "1.20"), "good"),
        (("2.10", "1.21"), "bad"),
        (("2.10", "1.20"), "good"),
        (("2.11", "1.21"), "good"),
    ]


@pytest.mark.parametrize("verdict", ["good", "bad"])
def test_pairs_that_are_alike_have_no_change(verdict: RunAnswer, snapshot: Snapshot) -> None:
    spec = corners(3, 3)
    finding, points = drive(VersionSearch(spec), lambda _: verdict)
    assert (finding.kind, finding.verdict, len(points)) == ("no-change", verdict, 2)
    assert [finding.text, *finding.notes] == snapshot


def test_pairs_that_are_the_other_way_round_are_undecided(snapshot: Snapshot) -> None:
    spec = corners(3, 3)
    finding, points = drive(
        VersionSearch(spec), lambda point: "bad" if point[0] < "2.11" else "good"
    )
    assert (finding.kind, len(points)) == ("undecided", 2)
    assert finding.text == snapshot


@pytest.mark.parametrize("end", ["good", "bad"])
def test_a_named_pair_that_cannot_be_tested_is_asked_for_anew(end: str) -> None:
    spec = corners(3, 3)
    hole = getattr(spec, end)
    finding, points = drive(
        VersionSearch(spec), lambda point: "untestable" if point == hole else "bad"
    )
    assert finding.kind == "undecided"
    assert points[-1] == hole


@pytest.mark.parametrize(
    ("holes", "bad", "kind", "searched"),
    [
        # qnn alone cannot be tested, ort alone passes: qnn is needed
        ("qnn", "both", "range", {"qnn"}),
        # ort alone is enough, whatever qnn does
        ("qnn", "either", "range", {"ort"}),
        ("ort", "qnn", "range", {"qnn"}),
        ("qnn ort", "both", "undecided", set()),
    ],
)
def test_mixed_corners_that_cannot_be_tested(
    holes: str, bad: str, kind: str, searched: set[str], snapshot: Snapshot
) -> None:
    spec = corners(5, 5)
    mixed = {"qnn": (spec.bad[0], spec.good[1]), "ort": (spec.good[0], spec.bad[1])}
    untestable = [mixed[axis] for axis in holes.split()]

    def world(point: Point) -> RunAnswer:
        if point in untestable:
            return "untestable"
        return "bad" if CAUSES[bad](point[0] >= "2.12", point[1] >= "1.22") else "good"

    finding, points = drive(VersionSearch(spec), world)
    assert (finding.kind, finding.fails_with) == (kind, None)
    assert finding.text == snapshot
    assert set(found_in(finding)) == searched
    assert len(points) <= spec.most_runs + len(untestable)
    for held_version, before, after in found_in(finding).values():
        assert (before, after) in (("2.11", "2.12"), ("1.21", "1.22")), held_version


@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_asked_follows_from_the_answers_alone(cause: str) -> None:
    """Whatever is known, in whatever order it came, the search goes on to the same finding."""
    spec = corners(6, 4)

    def world(point: Point) -> RunAnswer:
        return "bad" if CAUSES[cause](point[0] >= "2.13", point[1] >= "1.21") else "good"

    whole, points = drive(VersionSearch(spec), world)
    for known in range(len(points) + 1):
        evidence = Evidence()
        for point in reversed(points[:known]):
            evidence = evidence.plus(point, world(point))
        search: Any = VersionSearch(spec, evidence)
        while isinstance(step := search.next(), Question):
            search.answer(step, world(step.at))
        assert (step.fails_with, step.searches) == (whole.fails_with, whole.searches)
