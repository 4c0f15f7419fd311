"""Hundreds of searches on a backend that is flaky: how many are right, and how many runs it takes.

`make nightly` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stand_in.flaky_versions import Backend, figures, searches

SEEDS = 100
RIGHT = 97

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Backend:
    return Backend.build(tmp_path_factory.mktemp("flaky"))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("hides", [0.10, 0.25, 0.35])
def test_a_hundred_seeds(
    backend: Backend, hides: float, share: float, show_figures: Callable[..., None]
) -> None:
    repeat = "auto" if 1 - hides - hides * share >= 0.5 else "rate:25%"
    found = searches(backend, SEEDS, hides, hides * share, repeat)
    told = figures(found, hides, hides * share)
    show_figures(
        f"bad looks good {hides:.0%}, good looks bad {hides * share:.1%}, {repeat}", **told
    )
    assert sum(one.right for one in found) >= RIGHT
    assert told["wrong"] <= 3
