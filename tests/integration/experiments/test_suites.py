"""The suites themselves, from command line to journal, with the stand-in on a simulated device.

There is no libcdsprpc there: buffers come from memfds, and those of a backend count once seen.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.device_runs import DeviceRuns, Finished
from tests.stand_in.build import build_htp

SWAPPED = """
import pytest
from harness.experiments.pairing import measure_pairing
from harness.experiments.pairing import Pairing
from harness.models.models import Model
from harness.experiments.pairing import Tolerances

RAW = Model("io-heavy", 4)


@pytest.mark.device
@pytest.mark.parametrize("model", [RAW], ids=str)
def test_swapped(bench, model):
    models = {"raw": model, "memhandle": model}
    measure_pairing(bench, models, Pairing("memhandle", "raw"), Tolerances())
"""


PAIRINGS = "memory=1,quick=1"
SHARING = "list=1,quick=1"
RUNS = {
    "right": {"test_mem_type_pairing": PAIRINGS},
    "wrong": {
        "io-heavy-raw-raw": f"{PAIRINGS},slow_prepared_us=3000",
        "io-heavy-memhandle-memhandle": f"{PAIRINGS},slow_prepared_us=3000",
        "io-heavy-raw-memhandle": f"{PAIRINGS},copies=wrong",
        "io-heavy-memhandle-raw": f"{PAIRINGS},at_first=wrong",
        "naive-": f"group=right,{SHARING}",
        "test_swapped": "",
    },
}
"""What the stand-in is told in one run, by a part of each case's name."""
TESTS = "mem_type_pairing or test_spill_fill or test_swapped"
RunOf = Callable[[str], Finished]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """run_of(name): how that one of RUNS ended; many tests look at the same."""

    @functools.cache
    def get(name: str) -> Finished:
        folder = tmp_path_factory.mktemp("run")
        build_htp(folder)
        (folder / "told.json").write_text(json.dumps(RUNS[name]))
        lab = DeviceRuns(tmp_path_factory.mktemp("lab"))
        suite = folder / "test_swapped.py"
        suite.write_text(SWAPPED)
        chosen = f"({TESTS}) and ({' or '.join(RUNS[name])})"
        plugin = ("-p", "tests.stand_in.in_front")
        return lab.run(*plugin, "-k", chosen, suite, STAND_IN_FOLDER=str(folder))

    return get


def case_of(completed: Finished, name: str) -> dict[str, Any]:
    (record,) = (case for case in completed.cases if name in case["case"])
    return record


def sessions_that_leave(lab: DeviceRuns, folder: Path, settings: str) -> dict[str, Any]:
    """The case about sessions made again and again, on a backend that does what it is told."""
    build_htp(folder)
    (folder / "stand_in.conf").write_text(f"composed=1\n{settings}\n")
    plugin = ("-p", "tests.stand_in.as_backend", "-k", "create_and_destroy and tiny")
    completed = lab.run(*plugin, STAND_IN_FOLDER=str(folder), STAND_IN_BEHIND="libQnnHtp.so")
    (case,) = completed.cases
    assert completed.code == (0 if case["outcome"] == "passed" else 1), completed.output
    return case


def verdicts(case: dict[str, Any]) -> dict[str, str]:
    return {check["name"].partition("[")[0]: check["verdict"] for check in case["checks"]}


@pytest.mark.nightly
def test_what_is_as_documented_passes(run_of: RunOf) -> None:
    completed = run_of("right")
    assert completed.code == 0, completed.output
    assert {case["outcome"] for case in completed.cases} == {"passed"}
    pairings = [case for case in completed.cases if "mem_type_pairing" in case["case"]]
    assert len(pairings) == 4
    for case in pairings:
        by_name = verdicts(case)
        # an execution of the stand-in is so short that busy cores can hide a difference
        assert by_name.pop("steady_latency_same") in ("held", "unseen"), case["checks"]
        assert set(by_name.values()) == {"held"}, case["checks"]
        assert case["measurements"]["allocator"] == "memfd"
        assert len(case["measurements"]["steady_us"]) == 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "case", "name"),
    [
        ("wrong", "raw-raw", "steady_latency_same"),
        ("wrong", "memhandle-memhandle", "steady_latency_same"),
        ("wrong", "raw-memhandle", "copies_per_inference"),
        ("wrong", "memhandle-raw", "io_allocated_at_first_inference"),
    ],
)
def test_the_suites_own_tolerances_tell_right_from_wrong(
    run_of: RunOf, run: str, case: str, name: str
) -> None:
    completed = run_of(run)
    assert completed.code == 1, completed.output
    case_record = case_of(completed, f"io-heavy-{case}")
    assert (case_record["outcome"], case_record["cause"]) == ("failed", "target")
    assert verdicts(case_record)[name] == "broken"


@pytest.mark.slow
def test_a_context_prepared_otherwise_than_asked_is_told(run_of: RunOf) -> None:
    completed = run_of("wrong")
    assert verdicts(case_of(completed, "test_swapped")) == {"prepared_as_asked": "broken"}


@pytest.mark.slow
def test_a_size_that_is_not_refused_is_told(run_of: RunOf) -> None:
    case_record = case_of(run_of("wrong"), "naive-")
    assert case_record["outcome"] == "failed"
    assert verdicts(case_record) == {"undersized_refused": "broken"}


@pytest.mark.nightly
def test_sessions_that_leave_memory_behind_are_told(lab: DeviceRuns, tmp_path: Path) -> None:
    case = sessions_that_leave(lab, tmp_path, "leak_bytes=80000")
    assert (case["outcome"], case["cause"]) == ("failed", "target")
    assert verdicts(case)["memory_left_by_each"] == "broken"
    assert case["measurements"]["sessions"] > 60, "a leak is believed without a longer look"
    (each, _) = case["checks"]
    assert 80_000 <= each["figures"]["left_bytes"] < 80_000 + each["figures"]["tolerance_bytes"]
