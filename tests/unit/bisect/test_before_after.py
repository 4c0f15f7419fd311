"""The runs of a search that are set side by side."""

from __future__ import annotations

from typing import Any

import pytest

from harness.bisect.folder import Answered
from harness.bisect.match import RunAnswer
from harness.bisect.result import (
    AxisFinding,
    CornersFinding,
    HeldSearch,
    VersionChange,
    edges_of,
)

ANSWERS: dict[str, RunAnswer] = {"+": "good", "-": "bad", "/": "untestable", "?": "unknown"}


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
        (REGRESSION, "c- c/ b?", []),
        (FIX, "b- c+", [(0, 1)]),
        (FIX, "a- d+ b- c+", [(2, 3)]),
        (FIX, "b- c+ b+ c-", [(0, 1)]),
        (finding(kind="no-change", verdict="good"), "a+ b+", []),
        (finding(kind="undecided"), "a+ b-", []),
        (REGRESSION, "b+", []),
        (REGRESSION, "c-", []),
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
        ("bz+ cz- dx-", [(0, 1)]),
        ("cz- dx- dy+", [(1, 2)]),
        ("bx+ cx- az- cz- bz+", [(4, 3)]),
    ],
)
def test_each_axis_that_matters_has_an_edge(text: str, edges: list[tuple[int, int]]) -> None:
    assert edges_of(CORNERS, runs(text)) == edges
