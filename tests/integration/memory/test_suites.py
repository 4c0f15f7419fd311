"""The suites themselves, from command line to journal, with the stand-in on a simulated device.

There is no libcdsprpc there: buffers come from memfds, and those of a backend count once seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.device_runs import DeviceRuns, Finished
from tests.stand_in.build import build_htp


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
        expected = {"held"}
        if (case["axes"]["prepare"], case["axes"]["execute"]) == ("memhandle", "memhandle"):
            expected = {"held", "unseen"}  # it allocates nothing, so there is nothing to be seen
        found = verdicts(case)
        # an execution of the stand-in is so short that busy cores can hide a difference
        assert found.pop("steady_latency_same") in ("held", "unseen"), case["checks"]
        assert set(found.values()) == expected, case["checks"]
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
