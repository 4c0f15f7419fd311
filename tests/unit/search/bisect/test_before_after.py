"""Which two runs are set side by side, of those that a search made."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from harness.search.bisect.answers import GoodOrBad, RunAnswer
from harness.search.bisect.before_after import edges_of, sides_of
from harness.search.bisect.findings import AxisChange, AxisFinding, CellFinding, GridFinding
from harness.search.bisect.log import Answered

ANSWERS: dict[str, RunAnswer] = {"+": "good", "-": "bad", "/": "untestable", "?": "unknown"}
Sides = tuple[int | None, int | None]


def runs(text: str) -> list[Answered]:
    """Such as "a+ b-" on one axis, "ax+ by-" on two."""
    return [Answered(at=tuple(one[:-1]), answer=ANSWERS[one[-1]]) for one in text.split()]


REGRESSION = AxisFinding("change", direction="regression", before="b", after="c")
FIX = AxisFinding("change", direction="fix", before="b", after="c")
ONLY = AxisFinding("no-change", only="a", verdict="good")
MANY = AxisFinding(
    "change",
    direction="regression",
    before="c",
    after="d",
    one_change=False,
    older=(AxisChange("regression", "a", "b"), AxisChange("fix", "b", "c")),
    newer=(AxisChange("fix", "d", "e"),),
)


@pytest.mark.parametrize(
    ("finding", "text", "sides"),
    [
        (REGRESSION, "a+ d- b+ c-", (2, 3)),
        (REGRESSION, "c- b+", (1, 0)),
        (REGRESSION, "b+ c- b+ c- a+ d-", (2, 3)),  # the last runs of each
        (REGRESSION, "b+ c- b- c+", (0, 1)),  # those that showed what the version is
        (REGRESSION, "c- c/ b?", (None, 0)),
        (REGRESSION, "b+", (0, None)),
        (FIX, "a- d+ b- c+", (2, 3)),
        (FIX, "b- c+ b+ c-", (0, 1)),
        (MANY, "a+ b- c+ d- e+", (2, 3)),
        (ONLY, "a+ a- a+ a-", (2, None)),
        (AxisFinding("no-change", only="a", verdict="bad"), "a- a+", (0, None)),
        (AxisFinding("no-change", verdict="good"), "a+ b+", (None, None)),
        (AxisFinding("undecided"), "a+ b-", (None, None)),
        (None, "a+ b-", (None, None)),
        (None, "", (None, None)),
    ],
)
def test_the_neighbours_of_a_change(finding: AxisFinding | None, text: str, sides: Sides) -> None:
    assert sides_of(finding, runs(text)) == sides


@pytest.mark.parametrize(
    ("finding", "text", "edges"),
    [
        (REGRESSION, "b+ c-", [(0, 1)]),
        (FIX, "b- c+", [(0, 1)]),
        (REGRESSION, "b+", []),
        (REGRESSION, "c-", []),
        (ONLY, "a+", []),
        (None, "a+", []),
        (MANY, "a+ b- c+ d- e+", [(2, 3), (0, 1), (1, 2), (3, 4)]),
        (MANY, "c+ d- a+ e+ b-", [(0, 1), (2, 4), (4, 0), (1, 3)]),
        (MANY, "c+ d- e+ a+", [(0, 1), (1, 2)]),  # of the others a side was never run
        (MANY, "c+ d- b-", [(0, 1), (2, 0)]),
        (MANY, "a+ b- c+", []),
    ],
)
def test_each_change_has_an_edge(
    finding: AxisFinding | None, text: str, edges: list[tuple[int, int]]
) -> None:
    assert edges_of(finding, runs(text)) == edges


def grid(
    answers: list[Answered],
    *,
    flaky: dict[str, GoodOrBad | None] | None = None,
    mattered: tuple[bool | None, bool | None] = (True, True),
) -> GridFinding:
    """Rows a to d, columns w to z; `flaky` says what points are that answered both."""
    verdicts: dict[tuple[str, ...], Any] = {}
    for one in answers:
        if one.answer in ("good", "bad"):
            verdicts[one.at] = one.answer
    verdicts |= {tuple(at): verdict for at, verdict in (flaky or {}).items()}
    cells = {
        at: CellFinding(verdicts.get(at), "run" if at in verdicts else "open")
        for at in itertools.product("abcd", "wxyz")
    }
    return GridFinding("frontier", ("ort", "qnn"), cells, mattered=mattered)


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("aw+ dz- bx+ cx-", (2, 3)),
        ("aw+ dz- cx- bx+", (3, 2)),  # the older versions before the newer ones
        ("aw- bw+", (0, 1)),
        ("ax- aw+", (1, 0)),
        ("aw+ bx- az-", (0, 2)),  # along one axis, though it is farther
        ("aw+ ay- ax-", (0, 2)),  # the nearest along it
        ("aw+ dw- aw/ cw- dw?", (0, 3)),
        ("aw+ cz- by-", (0, 2)),  # the nearest across
        ("dw+ ax- bx-", (2, 0)),  # how far, whichever way
        ("aw+ ax- aw+ ax-", (2, 3)),  # the last runs of each
        ("ax- bw- aw+", (2, 1)),
        ("aw+ bx+ ax-", (2, 1)),
        ("aw+ bx+", (None, None)),
        ("aw- bx-", (None, None)),
        ("aw/ bx-", (None, None)),
        ("", (None, None)),
    ],
)
def test_the_closest_unlike_answers_of_a_grid(text: str, sides: Sides) -> None:
    answers = runs(text)
    assert sides_of(grid(answers), answers) == sides


@pytest.mark.parametrize(
    ("flaky", "text", "sides"),
    [
        ({"bw": "bad"}, "aw+ bw- bw+ bw-", (0, 3)),
        ({"bw": "bad"}, "aw+ bw- bw+ cw-", (0, 1)),  # not a failure and another one's luck
        ({"aw": "good"}, "aw+ aw- bw- bw-", (0, 3)),
        ({"aw": "good"}, "aw+ aw- bw+", (None, None)),
        ({"aw": None}, "aw+ aw-", (None, None)),  # one point is no two sides
        ({"aw": None, "bw": None}, "aw+ bw-", (0, 1)),
    ],
)
def test_a_flaky_point_is_what_it_was_found_to_be(
    flaky: dict[str, GoodOrBad | None], text: str, sides: Sides
) -> None:
    """And is never set beside itself."""
    answers = runs(text)
    assert sides_of(grid(answers, flaky=flaky), answers) == sides


@pytest.mark.parametrize(
    ("text", "mattered", "edges"),
    [
        ("bw+ bx- ax+", (True, True), [(2, 1), (0, 1)]),
        ("bw+ bx- ax+", (False, True), [(2, 1), (0, 1)]),  # shown first, whatever mattered
        ("bw+ bx- ax+", (True, False), [(2, 1)]),
        ("bw+ bx- ax+", (True, None), [(2, 1), (0, 1)]),  # it might
        ("ax+ bx- bw+ ay-", (True, True), [(2, 1), (0, 1)]),
        ("aw+ bw- aw+", (True, True), [(2, 1)]),  # along the other no two are unlike
        ("aw+ bx-", (True, True), [(0, 1)]),
        ("aw+ bx- cw- ay-", (True, True), [(0, 3), (0, 2)]),
        ("aw+ bx- cw- ay-", (False, True), [(0, 3)]),
        ("aw+ ax- cw- dw-", (None, True), [(0, 1), (0, 2)]),  # the closest on it
        ("aw+ bx+", (True, True), []),
    ],
)
def test_each_axis_that_matters_has_an_edge(
    text: str, mattered: tuple[bool | None, bool | None], edges: list[tuple[int, int]]
) -> None:
    answers = runs(text)
    assert edges_of(grid(answers, mattered=mattered), answers) == edges
