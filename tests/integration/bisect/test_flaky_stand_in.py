"""A few searches on a backend that is flaky: every night there are hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needed import C_COMPILERS, need
from tests.stand_in.flaky_versions import Backend, figures, searches

SEEDS = 8


@pytest.mark.parametrize("alarms", [0.0, 0.25])
def test_a_flaky_backend_is_seen_through(tmp_path: Path, alarms: float) -> None:
    need(*C_COMPILERS)
    found = searches(Backend.build(tmp_path), SEEDS, 0.25, alarms)
    assert sum(one.right for one in found) >= SEEDS - 1, figures(found, 0.25)
