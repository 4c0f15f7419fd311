"""Findings in words, and what runs that disagree come to."""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.bisect.driver import VersionSearch
from harness.bisect.match import Evidence, RunAnswer, repeats_needed
from harness.bisect.result import (
    FlakyVersion,
    VersionChange,
    flaky_versions,
)
from tests.unit.bisect.histories import axis, changing, corners, drive

BROKE = VersionChange.of("regression", "3", "4")
MENDED = VersionChange.of("fix", "5", "8", ["6", "7"])


@pytest.mark.parametrize(
    ("change", "fields", "text"),
    [
        (BROKE, {"last_good": "3", "first_bad": "4"}, "last good 3, first bad 4"),
        (
            MENDED,
            {"last_bad": "5", "first_good": "8"},
            "last bad 5, first good 8 or one of the undecided before it: 6, 7",
        ),
    ],
)
def test_a_change_in_words(change: VersionChange, fields: dict[str, str], text: str) -> None:
    named = {
        name: version
        for name, version in change.model_dump().items()
        if name[-4:] in ("good", "_bad")
    }
    assert {name: version for name, version in named.items() if version} == fields
    assert (change.before, change.after) == tuple(fields.values())
    assert change.description == text


@pytest.mark.parametrize(
    ("failed", "runs", "repeats"),
    [(1, 5, 21), (2, 5, 10), (1, 2, 7), (9, 10, 3), (99, 100, 2), (999, 1000, 1), (1, 100, 459)],
)
def test_repeats_that_hardly_miss_a_failure(failed: int, runs: int, repeats: int) -> None:
    assert repeats_needed(failed, runs) == repeats
    chance = Fraction(runs - failed, runs)
    assert chance**repeats < Fraction(1, 100) <= chance ** (repeats - 1)


def evidence_of(answers: str) -> Evidence:
    letters: dict[str, RunAnswer] = {"g": "good", "b": "bad", "n": "untestable", "u": "unsure"}
    evidence = Evidence()
    for version, of_version in zip(("2.10", "2.11"), answers.split(), strict=True):
        for letter in of_version:
            evidence = evidence.plus((version,), letters[letter])
    return evidence


@pytest.mark.parametrize(
    ("answers", "flaky"),
    [
        ("ggg bbb", ()),
        ("ggg gbbgg", (FlakyVersion(at=("2.11",), failed=2, runs=5, repeats=10),)),
        (
            "gb bg",
            (
                FlakyVersion(at=("2.10",), failed=1, runs=2, repeats=7),
                FlakyVersion(at=("2.11",), failed=1, runs=2, repeats=7),
            ),
        ),
        ("gu ug", ()),
    ],
)
def test_versions_whose_runs_disagree(answers: str, flaky: tuple[FlakyVersion, ...]) -> None:
    assert flaky_versions(evidence_of(answers)) == flaky


def test_a_version_whose_runs_disagree_is_bad_after_all_its_runs() -> None:
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
    assert finding.flaky[0].description == (
        "flaky: 2 of 5 failed at 2.13; with --repeat 10 a miss is less likely than 1 % at that rate"
    )
    assert len(versions_run) <= axis(4, repeat=5).most_runs


def test_a_flaky_corner_is_told_as_a_pair() -> None:
    spec = corners(2, 2, repeat=2)
    evidence = Evidence().plus(spec.bad, "good").plus(spec.bad, "bad")
    (flaky,) = flaky_versions(evidence)
    assert flaky.description.startswith("flaky: 1 of 2 failed at 2.11 with 1.21; with --repeat 7 ")
