"""Every monotone grid up to 5 x 6, and many greater ones, whichever way the axes go."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.unit.bisect.histories import grid
from tests.unit.bisect.test_grid_search import (
    OLDER,
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
