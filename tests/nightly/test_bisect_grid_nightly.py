"""Every monotone grid up to 5 x 6, and many greater ones, whichever way the axes go."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from harness.search.bisect.grid_search import GridSearch
from harness.search.bisect.search import GridSpec
from tests.unit.search.bisect.histories import drive_grid, grid
from tests.unit.search.bisect.test_grid_search import (
    OLDER,
    Truth,
    require_right_within_the_bound,
    truth_of,
    truths,
)

Show = Callable[..., None]
pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("older", OLDER)
def test_every_grid_of_five_by_six(older: tuple[bool, bool], show_figures: Show) -> None:
    for rows, columns in ((5, 6), (6, 5), (2, 6), (5, 5)):
        spec = grid(rows, columns)
        runs = [require_right_within_the_bound(spec, truth) for truth in truths(spec, older=older)]
        mean = round(sum(runs) / len(runs), 1)
        show_figures(f"{rows} x {columns}", mean_runs=mean, most=max(runs), of=rows + columns + 4)


@pytest.mark.parametrize("shape", [(13, 5), (5, 13), (20, 20), (30, 7)])
@pytest.mark.parametrize("older", OLDER)
def test_greater_grids(shape: tuple[int, int], older: tuple[bool, bool]) -> None:
    chance = random.Random(f"{shape} {older}")
    spec = grid(*shape)
    for _ in range(60):
        starts = tuple(sorted((chance.randint(0, shape[1]) for _ in range(shape[0])), reverse=True))
        require_right_within_the_bound(spec, truth_of(spec, starts, older))


def runs_along_the_edge(spec: GridSpec, truth: Truth) -> int:
    """Both ends, and then step by step between the good and the bad: no choice to think about."""
    asked = {(spec.rows[0], spec.columns[0]), (spec.rows[-1], spec.columns[-1])}
    row, column = 0, len(spec.columns) - 1
    while row < len(spec.rows) and column >= 0:
        at = spec.rows[row], spec.columns[column]
        asked.add(at)
        row, column = (row, column - 1) if truth[at] == "good" else (row + 1, column)
    return len(asked)


@pytest.mark.parametrize("shape", [(5, 6), (13, 5), (20, 8)])
def test_one_cause_takes_fewer_runs_than_walking_along_the_edge(
    shape: tuple[int, int], show_figures: Show
) -> None:
    """Directions told, and nothing checked: what is left is where the next run is made."""
    chance = random.Random(f"{shape}")
    rows, columns = shape
    spec = grid(rows, columns, newer=(True, True), checks=0)
    searched, walked = 0, 0
    for _ in range(60):
        first_row, first_column = chance.randrange(rows), chance.randrange(1, columns)
        starts = (columns,) * first_row + (first_column,) * (rows - first_row)
        truth = truth_of(spec, starts, OLDER[0])
        searched += len(drive_grid(GridSearch(spec), truth.__getitem__)[1])
        walked += runs_along_the_edge(spec, truth)
    show_figures(f"{rows} x {columns}", searched=searched / 60, walked=walked / 60)
    assert searched < walked
