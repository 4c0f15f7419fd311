"""An axis as it is searched: its gaps, its ends, and what is said of claims."""

from __future__ import annotations

from typing import Any

import pytest

from harness.bisect.driver import AxisState
from harness.bisect.match import Evidence, RunAnswer
from harness.bisect.result import VersionChange as Change
from tests.unit.bisect.histories import axis, names

TOLD: dict[str, RunAnswer] = {"g": "good", "b": "bad", "n": "untestable"}


def state(*answers: str, **options: Any) -> AxisState:
    """Of an axis whose candidates answered so: some letters for each."""
    evidence = Evidence()
    for name, letters in zip(names(len(answers)), answers, strict=True):
        for letter in letters:
            evidence = evidence.plus((name,), TOLD[letter])
    return AxisState.of(axis(len(answers), **options), evidence)


def test_places_and_tallies_are_those_of_what_can_be_tested() -> None:
    axis_state = state("g", "", "n", "gb", "", "", good="2.10")
    assert axis_state.names == ("2.10", "2.11", "2.13", "2.14", "2.15")
    assert axis_state.places == (0, 1, 3, 4, 5)
    assert axis_state.claims == ("good", None, None, None, None)
    assert [tally.answers for tally in axis_state.tallies] == [1, 0, 2, 0, 0]
    assert axis_state.question(2, "so").at == ("2.13",)
    assert (axis_state.question(2, "so").number, axis_state.question(2, "so").why) == (5, "so")


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({}, [0, 4]),
        ({"good": "2.12"}, [2, 4, 0]),
        ({"bad": "2.12"}, [2, 0, 4]),
        ({"good": "2.10"}, [0, 4, 0]),
        ({"bad": "2.14"}, [4, 0, 4]),
        ({"good": "2.10", "bad": "2.14"}, [0, 4]),
        ({"good": "2.14", "bad": "2.10"}, [4, 0]),
    ],
)
def test_which_ends_are_confirmed_first(options: dict[str, str], ends: list[int]) -> None:
    assert list(state("", "", "", "", "", **options).ends()) == ends


def test_an_end_that_cannot_be_tested_has_a_neighbour_for_it() -> None:
    fields = {"good": "2.14", "bad": "2.10"}
    assert list(state("n", "", "", "", "", **fields).ends()) == [3, 3, 0]
    assert list(state("", "", "", "", "n", **fields).ends()) == [0, 0, 3]


@pytest.mark.parametrize(
    ("answers", "options", "notes"),
    [
        (["", ""], {"good": "2.10", "bad": "2.11"}, ()),
        (["n", ""], {}, ("could not be tested: 2.10",)),
        (
            ["n", ""],
            {"good": "2.10"},
            ("2.10 was said to be good, and cannot be tested", "could not be tested: 2.10"),
        ),
    ],
)
def test_nothing_is_said_of_what_is_not_known(
    answers: list[str], options: dict[str, str], notes: tuple[str, ...]
) -> None:
    assert state(*answers, **options).finding("undecided").notes == notes


@pytest.mark.parametrize(
    ("options", "states", "notes"),
    [
        ({"good": "2.10", "bad": "2.11"}, ["good", "bad"], ()),
        ({"good": "2.10", "bad": "2.11"}, ["good", None], ()),
        (
            {"good": "2.10", "bad": "2.11"},
            ["bad", "good"],
            ("2.10 was said to be good, and is bad", "2.11 was said to be bad, and is good"),
        ),
        ({"good": "2.10"}, ["bad", "good"], ("2.10 was said to be good, and is bad",)),
        (
            {"good": "2.10", "bad": "2.11"},
            ["good", "good"],
            ("2.11 was said to be bad, and is good",),
        ),
    ],
)
def test_claims_beside_what_is_so(
    options: dict[str, str], states: list[Any], notes: tuple[str, ...]
) -> None:
    assert state("g", "g", **options).finding("undecided", states=states).notes == notes


def test_a_finding_counts_the_runs_and_names_what_lies_between() -> None:
    axis_state = state("g", "n", "b")
    change = axis_state.change(["good", "bad"], 0, 1)
    finding = axis_state.finding("change", states=["good", "bad"], notes=["so"], change=change)
    assert (finding.kind, finding.before, finding.after, finding.between) == (
        *("range", "2.10", "2.12", ("2.11",)),
    )
    assert (finding.runs, finding.unknown, finding.notes) == (3, 0, ("so",))
    none = axis_state.finding("no-change", verdict="good")
    assert (none.between, none.notes) == (("2.11",), ())
    plain = state("g", "b")
    assert plain.change(["bad", "good"], 0, 1) == Change.of("fix", "2.10", "2.11")


MENDED = Change.of("fix", "2.10", "2.11")
BROKE = Change.of("regression", "2.10", "2.11")


@pytest.mark.parametrize(
    ("change", "states", "notes"),
    [
        (
            MENDED,
            ["bad", "good"],
            (
                "older versions are bad and newer ones good: this version fixed it, or is the "
                "oldest that can run the case",
            ),
        ),
        (BROKE, ["good", "bad"], ()),
    ],
)
def test_a_version_that_fixed_it_is_called_so(
    change: Change, states: list[Any], notes: tuple[str, ...]
) -> None:
    assert state("", "").finding("change", states=states, change=change).notes == notes
