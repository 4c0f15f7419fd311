"""The suites themselves, from command line to journal, with the stand-in on a simulated device.

There is no libcdsprpc there: buffers come from memfds, and those of a backend count once seen.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.device_runs import DeviceRuns, Finished
from tests.stand_in.build import build_htp

SWAPPED = """
import pytest
from harness.experiments.memory_type_pairing import Pairing, Tolerances, measure_pairing
from harness.models.builtin_models import Model


@pytest.mark.device
@pytest.mark.parametrize("model", [Model("io-heavy", 4)], ids=str)
def test_swapped(bench, model):
    models = {"raw": model, "memhandle": model}
    measure_pairing(bench, models, Pairing("memhandle", "raw"), Tolerances())
"""


PAIRINGS = "memory=1,quick=1"
WRONG = {
    "io-heavy-raw-raw": (f"{PAIRINGS},slow_prepared_us=3000", "steady_latency_same"),
    "io-heavy-memhandle-memhandle": (f"{PAIRINGS},slow_prepared_us=3000", "steady_latency_same"),
    "io-heavy-raw-memhandle": (f"{PAIRINGS},copies=wrong", "copies_per_inference"),
    "io-heavy-memhandle-raw": (f"{PAIRINGS},at_first=wrong", "io_allocated_at_first_inference"),
    "naive-": ("group=right,list=1,quick=1", "undersized_refused"),
    "test_swapped": ("", "prepared_as_asked"),
}
"""By a part of a case's name: what the stand-in does, and which check that breaks."""
TESTS = "mem_type_pairing or test_spill_fill or test_swapped"


def run_with(lab: DeviceRuns, folder: Path, behaviours: Mapping[str, str]) -> Finished:
    """Run the suites in front of the stand-in, by parts of the names of cases."""
    build_htp(folder)
    (folder / "told.json").write_text(json.dumps(behaviours))
    suite = lab.write_suite(SWAPPED, "test_swapped.py")
    chosen = f"({TESTS}) and ({' or '.join(behaviours)})"
    plugin = ("-p", "tests.stand_in.as_backend")
    return lab.run(*plugin, "-k", chosen, suite, STAND_IN_FOLDER=str(folder))


def sessions_that_leave(lab: DeviceRuns, folder: Path, settings: str) -> dict[str, Any]:
    """The case about sessions made again and again, on a backend that does what it is told."""
    build_htp(folder)
    (folder / "stand_in.conf").write_text(f"composed=1\n{settings}\n")
    plugin = ("-p", "tests.stand_in.as_backend", "-k", "create_and_destroy and tiny")
    completed = lab.run(*plugin, STAND_IN_FOLDER=str(folder))
    (case,) = completed.cases
    assert completed.code == (0 if case["outcome"] == "passed" else 1), completed.output
    return case


def verdicts(case: dict[str, Any]) -> dict[str, str]:
    return {check["name"].partition("[")[0]: check["verdict"] for check in case["checks"]}


@pytest.mark.slow
def test_the_suites_tell_right_from_wrong(lab: DeviceRuns, tmp_path: Path) -> None:
    behaviours = {name: behaviour for name, (behaviour, _) in WRONG.items()}
    completed = run_with(lab, tmp_path, behaviours)
    assert completed.code == 1, completed.output
    for name, (_, check) in WRONG.items():
        (case,) = (case for case in completed.cases if name in case["case"])
        assert (case["outcome"], case["cause"]) == ("failed", "target"), case
        assert verdicts(case)[check] == "broken"


@pytest.mark.nightly
def test_sessions_that_leave_memory_behind_are_told(lab: DeviceRuns, tmp_path: Path) -> None:
    case = sessions_that_leave(lab, tmp_path, "leak_bytes=80000")
    assert (case["outcome"], case["cause"]) == ("failed", "target")
    assert verdicts(case)["memory_left_by_each"] == "broken"
    assert case["measurements"]["sessions"] > 60, "a leak is believed without a longer look"
    (each, _) = case["checks"]
    assert 80_000 <= each["figures"]["left_bytes"] < 80_000 + each["figures"]["tolerance_bytes"]
