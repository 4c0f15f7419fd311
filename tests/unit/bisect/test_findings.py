"""Findings: runs that disagree, and the runs on both sides of a change."""

from fractions import Fraction
from typing import Any

import pytest

from harness.bisect.bad_condition import Evidence, RunAnswer, repeats_needed
from harness.bisect.folder import Answered
from harness.bisect.result import (
    AxisFinding,
    CornersFinding,
    FlakyVersion,
    HeldSearch,
    VersionChange,
    edges_of,
    flaky_versions,
)
from harness.bisect.version_search import VersionSearch
from tests.snapshots import Snapshot
from tests.unit.bisect.histories import axis, changing, drive


@pytest.mark.parametrize(
    ("failed", "runs", "repeats"),
    [(1, 5, 21), (2, 5, 10), (1, 2, 7), (9, 10, 3), (99, 100, 2), (999, 1000, 1), (1, 100, 459)],
)
def test_repeats_that_hardly_miss_a_failure(failed: int, runs: int, repeats: int) -> None:
    assert repeats_needed(failed, runs) == repeats
    chance = Fraction(runs - failed, runs)
    assert chance**repeats < Fraction(1, 100) <= chance ** (repeats - 1)


ANSWERS: dict[str, RunAnswer] = {
    "+": "good",
    "-": "bad",
    "/": "untestable",
    "?": "unknown",
    "u": "unsure",
}


def evidence_of(answers: str) -> Evidence:
    evidence = Evidence()
    for version, of_version in zip(("2.10", "2.11"), answers.split(), strict=True):
        for letter in of_version:
            evidence = evidence.plus((version,), ANSWERS[letter])
    return evidence


@pytest.mark.parametrize(
    ("answers", "flaky"),
    [
        ("+++ ---", ()),
        ("+++ +--++", (FlakyVersion(at=("2.11",), failed=2, runs=5, repeats=10),)),
        (
            "+- -+",
            (
                FlakyVersion(at=("2.10",), failed=1, runs=2, repeats=7),
                FlakyVersion(at=("2.11",), failed=1, runs=2, repeats=7),
            ),
        ),
        ("+u u+", ()),
    ],
)
def test_versions_whose_runs_disagree(answers: str, flaky: tuple[FlakyVersion, ...]) -> None:
    assert flaky_versions(evidence_of(answers)) == flaky


def test_a_version_whose_runs_disagree_is_bad_after_all_its_runs(snapshot: Snapshot) -> None:
    """Of five runs of the newest the second and the fourth fail."""
    truth, versions_run = changing(4, 2), list[str]()

    def world(point: tuple[str, ...]) -> RunAnswer:
        versions_run.append(point[0])
        if point == ("2.13",):
            return "bad" if versions_run.count("2.13") in (2, 4) else "good"
        return truth(point)

    finding, _ = drive(VersionSearch(axis(4, repeat=5)), world)
    assert (finding.kind, finding.last_good, finding.first_bad) == ("change", "2.11", "2.12")
    assert [versions_run.count(f"2.1{i}") for i in range(4)] == [5, 5, 5, 5]
    assert finding.flaky == (FlakyVersion(at=("2.13",), failed=2, runs=5, repeats=10),)
    assert finding.flaky[0].description == snapshot
    assert len(versions_run) <= axis(4, repeat=5).most_runs


def runs(text: str) -> list[Answered]:
    """Such as "a+ b-" on one axis, "ax+ by-" on two."""
    return [Answered(at=tuple(word[:-1]), answer=ANSWERS[word[-1]]) for word in text.split()]


def finding(change: VersionChange | None = None, **more: Any) -> AxisFinding:
    fields = (change or VersionChange()).model_dump() | {"text": "", "kind": "change"} | more
    return AxisFinding.model_validate(fields)


BROKE, MENDED = VersionChange.of("regression", "b", "c"), VersionChange.of("fix", "b", "c")
REGRESSION, FIX = finding(BROKE), finding(MENDED)


@pytest.mark.parametrize(
    ("finding", "text", "edges"),
    [
        (REGRESSION, "b+ c-", [(0, 1)]),
        (REGRESSION, "a+ d- b+ c-", [(2, 3)]),
        (REGRESSION, "c- b+", [(1, 0)]),
        (REGRESSION, "b+ c- b+ c- a+ d-", [(2, 3)]),  # the last runs of each
        (REGRESSION, "b+ c- b- c+", [(0, 1)]),  # those that showed what the version is
        (FIX, "b- c+", [(0, 1)]),
        (FIX, "a- d+ b- c+", [(2, 3)]),
        (FIX, "b- c+ b+ c-", [(0, 1)]),
        (finding(kind="no-change", verdict="good"), "a+ b+", []),
        (finding(kind="undecided"), "a+ b-", []),
        (REGRESSION, "b+", []),
        (None, "a+", []),
        (None, "", []),
    ],
)
def test_each_change_has_an_edge(
    finding: AxisFinding | None, text: str, edges: list[tuple[int, int]]
) -> None:
    assert edges_of(finding, runs(text)) == edges


CORNERS = CornersFinding(
    text="",
    kind="change",
    axes=("qnn", "ort"),
    fails_with="both",
    searches=(
        HeldSearch(axis="qnn", held={"ort": "z"}, answer=REGRESSION),
        HeldSearch(
            axis="ort", held={"qnn": "d"}, answer=finding(VersionChange.of("fix", "x", "y"))
        ),
    ),
)


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("bz+ cz- dx- dy+", [(0, 1), (2, 3)]),
        ("dy+ dx- cz- bz+", [(3, 2), (1, 0)]),
        ("cz- dx- dy+", [(1, 2)]),
        ("bx+ cx- az- cz- bz+", [(4, 3)]),
    ],
)
def test_each_axis_that_matters_has_an_edge(text: str, edges: list[tuple[int, int]]) -> None:
    assert edges_of(CORNERS, runs(text)) == edges
