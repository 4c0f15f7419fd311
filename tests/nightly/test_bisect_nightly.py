"""Bisections that take too long for every change: 50 deaths."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.versions import QNN_WHEELS
from tests.integration.bisect.bisections import (
    PLAIN,
    bisect,
    every_version,
    killed_after,
    require_nothing_made_twice,
)
from tests.integration.device_runs import DeviceRuns

QNN = list(QNN_WHEELS)
DEATHS = 50

pytestmark = pytest.mark.nightly
Show = Callable[..., None]


@pytest.fixture
def lab(tmp_path: Path) -> DeviceRuns:
    return DeviceRuns(tmp_path)


def test_killed_at_random_moments(lab: DeviceRuns, show_figures: Show) -> None:
    truth = every_version(
        lab, "tiny and sequential-1 and not 100", "--qnn", QNN[0], "--compiler", "all"
    )
    first_bad = next(version for version in QNN if truth[version, QNN[0]] == "bad")
    dice = random.Random(6)
    arguments = ["--case", PLAIN, "--axis", "compiler", "--qnn", QNN[0]]
    deaths, bisections, repeated = 0, 0, 0
    while deaths < DEATHS:
        bisections += 1
        code = killed_after(lab, dice.uniform(0, 10), *arguments)
        while code is None:
            deaths += 1
            code = killed_after(lab, dice.uniform(0.5, 20), "--resume")
        completed = bisect(lab, "--resume")
        assert completed.result["answer"]["first_bad"] == first_bad
        repeated += require_nothing_made_twice(lab, completed)
    show_figures("SIGKILL", deaths=deaths, resumed=repeated, bisections=bisections)
