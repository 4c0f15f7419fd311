"""Hundreds of searches on a backend that is flaky: how many are right, and how many runs it takes.

`make nightly` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stand_in.flaky_versions import Backend, figures, searches

SEEDS = 100
RIGHT = 97
RIGHT_OF_LESS = 60
"""Of a change by less than 50 points, that there is none by as much may be the answer."""

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Backend:
    return Backend.build(tmp_path_factory.mktemp("flaky"))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("hides", [0.10, 0.25, 0.35])
def test_a_hundred_seeds(
    backend: Backend, hides: float, share: float, show_figures: Callable[..., None]
) -> None:
    found = searches(backend, SEEDS, hides, hides * share)
    told = figures(found, hides)
    show_figures(f"bad looks good {hides:.0%}, good looks bad {hides * share:.1%}", **told)
    enough = RIGHT if 1 - hides - hides * share >= 0.5 else RIGHT_OF_LESS
    assert sum(one.right for one in found) >= enough
    assert told["wrong"] <= 3
