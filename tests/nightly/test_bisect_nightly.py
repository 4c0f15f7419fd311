"""What takes too long for every change: the whole grid, 50 deaths, a flaky backend."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.ground.facts.versions import QNN_WHEELS
from harness.libraries.runtimes.ort import ORT_VERSIONS
from tests.integration.device_runs import DeviceRuns
from tests.integration.search.bisect.bisections import (
    PLAIN,
    SESSION,
    bisect,
    bisect_flaky,
    every_version,
    killed_after,
    require_nothing_made_twice,
)

QNN = list(QNN_WHEELS)
ORT = [version for version in ORT_VERSIONS if version < "1.32"]
DEATHS = 50

pytestmark = pytest.mark.nightly
Show = Callable[..., None]


@pytest.fixture
def lab(tmp_path: Path) -> DeviceRuns:
    return DeviceRuns(tmp_path)


def test_the_whole_grid_of_ort_and_qnn(lab: DeviceRuns, show_figures: Show) -> None:
    done = bisect(
        lab,
        *("--case", SESSION, "--axis", "ort,qnn", "--device", "sim-v73"),
        *("--ort", ",".join(ORT), "--qnn", ",".join(QNN)),
    )
    assert done.code == 0, done.errors
    bisect_s = sum(run["seconds"] for run in done.result["runs"])
    began = time.monotonic()
    truth = every_version(lab, "test_session and tiny", "--ort", ",".join(ORT), "--qnn", "all")
    told = {tuple(cell["at"]): cell["verdict"] for cell in done.result["cells"]}
    assert told == truth
    assert len(done.result["runs"]) <= len(ORT) + len(QNN) + 4
    show_figures(
        "ort x qnn",
        bisect_s=round(bisect_s, 1),
        every_pair_in_one_run_s=round(time.monotonic() - began, 1),
        runs=len(done.result["runs"]),
        pairs=len(truth),
        answer=done.result["answer"]["text"],
    )


def test_killed_at_random_moments(lab: DeviceRuns, show_figures: Show) -> None:
    truth = every_version(
        lab, "tiny and sequential-1 and not 100", "--qnn", QNN[0], "--compiler", "all"
    )
    first_bad = next(version for version in QNN if truth[version, QNN[0]] == "bad")
    dice = random.Random(6)
    arguments = ["--case", PLAIN, "--axis", "compiler", "--qnn", QNN[0]]
    deaths, bisections, seen = 0, 0, 0
    while deaths < DEATHS:
        bisections += 1
        code = killed_after(lab, dice.uniform(0, 10), *arguments)
        while code is None:
            deaths += 1
            code = killed_after(lab, dice.uniform(0.5, 20), "--resume")
        done = bisect(lab, "--resume")
        assert done.result["answer"]["first_bad"] == first_bad
        seen += require_nothing_made_twice(lab, done)
    show_figures("SIGKILL", deaths=deaths, resumed=seen, bisections=bisections)


@pytest.mark.parametrize("rate", ["0.10", "0.25", "0.35"])
def test_a_flaky_backend(lab: DeviceRuns, tmp_path: Path, rate: str, show_figures: Show) -> None:
    done = bisect_flaky(lab, tmp_path / "stand-in", QNN[3], rate)
    answer = done.result["answer"]
    show_figures(f"flaky {rate}", runs=len(done.result["runs"]), answer=answer["text"])
    assert done.code == 0, answer
    assert (answer["last_good"], answer["first_bad"]) == (QNN[2], QNN[3])
    assert answer["confidence"] >= 0.99
