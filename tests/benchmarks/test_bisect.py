"""Bisections over all wheels beside a shell loop that tries every version.

Everything is cached before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.versions import QNN_WHEELS
from tests.integration.bisect.bisections import PLAIN, RESIDENT
from tests.integration.bisect.loops import beside_a_loop
from tests.integration.device_runs import DeviceRuns

QNN = tuple(QNN_WHEELS)


@pytest.mark.benchmark
def test_compilers_beside_a_loop(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    """Cheap runs: a context that an old runtime loads, or refuses."""
    lab = DeviceRuns(tmp_path)
    figures = beside_a_loop(
        lab, PLAIN, "tiny and sequential-1 and not 100", {"compiler": QNN}, {"qnn": QNN[0]}
    )
    show_figures("compiler, beside a loop over all versions", **figures)


@pytest.mark.benchmark
def test_runtimes_beside_a_loop(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    """Dear runs: 66 resident contexts, which newer runtimes refuse."""
    lab = DeviceRuns(tmp_path)
    figures = beside_a_loop(
        lab, RESIDENT, "io-heavy and resident and 66", {"qnn": QNN}, {"compiler": QNN[0]}
    )
    show_figures("qnn, beside a loop over all versions", **figures)
