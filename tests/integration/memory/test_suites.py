"""The suites themselves, from command line to journal, with the stand-in on a simulated device.

There is no libcdsprpc there: buffers come from memfds, and those of a backend count once seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.device_runs import DeviceRuns, Finished
from tests.stand_in.build import build_htp

SWAPPED = """
import pytest
from harness.bench_memory import measure_pairing
from harness.contexts.mem_pairing import Pairing
from harness.contexts.models import ModelSpec
from harness.results.judge_pairing import Tolerances

RAW = ModelSpec("io-heavy", 4)


@pytest.mark.device
@pytest.mark.parametrize("model", [RAW], ids=str)
def test_swapped(bench, model):
    models = {"raw": model, "memhandle": model}
    measure_pairing(bench, models, Pairing("memhandle", "raw"), Tolerances())
"""


def run(lab: DeviceRuns, folder: Path, told: str, *arguments: str) -> Finished:
    build_htp(folder)
    (folder / "stand_in.conf").write_text(told.replace(",", "\n"))
    plugin = ("-p", "tests.stand_in.in_front")
    return lab.run(*plugin, *arguments, STAND_IN_FOLDER=str(folder))


def verdicts(case: dict[str, Any]) -> dict[str, str]:
    return {check["name"].partition("[")[0]: check["verdict"] for check in case["checks"]}


def test_pairings_as_documented(lab: DeviceRuns, tmp_path: Path) -> None:
    done = run(lab, tmp_path, "memory=1,quick=1", "-k", "mem_type_pairing")
    assert done.code == 0, done.output
    assert {case["outcome"] for case in done.cases} == {"passed"}
    assert len(done.cases) == 4
    for case in done.cases:
        found = verdicts(case)
        # an execution of the stand-in is so short that busy cores can hide a difference
        assert found.pop("steady_latency_same") in ("held", "unseen"), case["checks"]
        assert set(found.values()) == {"held"}, case["checks"]
        assert case["measurements"]["allocator"] == "memfd"
        assert len(case["measurements"]["steady_us"]) == 30


def test_a_broken_promise_fails_its_case_and_says_which(lab: DeviceRuns, tmp_path: Path) -> None:
    told = "memory=1,quick=1,copies=wrong"
    done = run(lab, tmp_path, told, "-k", "mem_type_pairing and raw-memhandle")
    assert done.code == 1, done.output
    (case,) = done.cases
    assert (case["outcome"], case["cause"]) == ("failed", "target")
    assert verdicts(case)["copies_per_inference"] == "broken"
    assert "copies_per_inference: expected no copies, the profile shows 2" in done.output
    page = (done.folder / "latest/report.html").read_text()
    assert "copies_per_inference" in page


@pytest.mark.parametrize(
    ("wrong", "pairing", "name"),
    [
        ("slow_prepared_us=3000", "raw-raw", "steady_latency_same"),
        ("slow_prepared_us=3000", "memhandle-memhandle", "steady_latency_same"),
        ("at_load=wrong", "raw-raw", "io_allocated_at_load"),
        ("at_first=wrong", "memhandle-raw", "io_allocated_at_first_inference"),
        ("grow_execute=1500000", "raw-memhandle", "io_settled_by_tenth"),
        ("leak=1", "memhandle-raw", "io_given_back"),
    ],
)
def test_the_suites_own_tolerances_tell_right_from_wrong(
    lab: DeviceRuns, tmp_path: Path, wrong: str, pairing: str, name: str
) -> None:
    chosen = f"mem_type_pairing and io-heavy-{pairing}"
    done = run(lab, tmp_path, f"memory=1,quick=1,{wrong}", "-k", chosen)
    assert done.code == 1, done.output
    (case,) = done.cases
    assert (case["outcome"], case["cause"]) == ("failed", "target")
    assert verdicts(case)[name] == "broken"


def test_a_context_prepared_otherwise_than_asked_is_told(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "test_swapped.py"
    suite.write_text(SWAPPED)
    done = lab.run(suites=suite)
    assert done.code == 1, done.output
    (case,) = done.cases
    assert verdicts(case) == {"prepared_as_asked": "broken"}
    assert "asked for memhandle, the compiler prepared the context for raw" in done.output


def test_a_restarted_dsp_is_no_refusal_of_a_size(lab: DeviceRuns, tmp_path: Path) -> None:
    told = "group=unchecked,list=1,quick=1,execute_code=1007,execute_after=1"
    done = run(lab, tmp_path, told, "-k", "spill_fill and naive")
    assert done.code == 1, done.output
    (case,) = done.cases
    assert (case["outcome"], case["error"]["code"]) == ("failed", 1007)
    assert case["error"]["diagnosis"]["id"] == "dsp-restarted"
    assert verdicts(case) == {"undersized_refused": "unseen"}


def test_buffers_that_are_not_shared_are_no_saving(lab: DeviceRuns, tmp_path: Path) -> None:
    done = run(lab, tmp_path, "group=private,list=2,quick=1", "-k", "spill_fill and list")
    assert done.code == 1, done.output
    (case,) = done.cases
    assert verdicts(case)["memory_saved"] == "broken"


@pytest.mark.parametrize(("leak", "code"), [(0, 0), (2_000_000, 1)])
def test_sessions_that_leave_memory_behind_are_told(
    lab: DeviceRuns, tmp_path: Path, leak: int, code: int
) -> None:
    build_htp(tmp_path)
    (tmp_path / "stand_in.conf").write_text(f"composed=1\nleak_bytes={leak}\n")
    plugin = ("-p", "tests.stand_in.as_backend", "-k", "create_and_destroy and tiny")
    told = {"STAND_IN_FOLDER": str(tmp_path), "STAND_IN_BEHIND": "libQnnHtp.so"}
    done = lab.run(*plugin, **told)
    assert done.code == code, done.output
    (case,) = done.cases
    expected = "broken" if leak else "held"
    assert verdicts(case) == dict.fromkeys(("memory_left_by_each", "memory_left_by_all"), expected)


@pytest.mark.parametrize(
    ("group", "naive", "broken"),
    [("right", "passed", []), ("unchecked", "failed", ["undersized_refused"])],
)
def test_sharing(
    lab: DeviceRuns, tmp_path: Path, group: str, naive: str, broken: list[str]
) -> None:
    told = f"group={group},list=1,quick=1"
    chosen = "spill_fill and spill-heavy and not ort and (naive or list)"
    done = run(lab, tmp_path, told, "-k", chosen)
    assert done.code == (1 if broken else 0), done.output
    found = done.case(strategy="naive")
    assert found["outcome"] == naive
    assert [name for name, verdict in verdicts(found).items() if verdict == "broken"] == broken
    assert done.case(strategy="list-async")["outcome"] == "passed"
    assert verdicts(done.case(strategy="list-async"))["memory_saved"] == "held"


def test_the_plan_of_each_strategy_is_shown(lab: DeviceRuns) -> None:
    done = lab.run("--plan", "-k", "spill_fill and spill-heavy and not ort")
    assert done.code == 0, done.output
    assert "max: load 1 (6881280 B), 0 (4325376 B), 2 (4325376 B), in one group" in done.output
    assert "expected spill-fill 6881280 B of 15532032 B, saving 8650752 B" in done.output
    assert "too small for 1: to be refused" in done.output
    assert "none: load 0" in done.output
