"""Programs of ExecuTorch as a user runs them: records like any other, and what a failure is of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.models.models import Model
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import DeviceRuns
from tests.integration.in_process import qnn_harness
from tests.integration.plugin.executorch_programs import (
    LOWERED as PROGRAM,
    write_damaged,
    write_program,
)
from tests.needed import need

SUITE = """
import pytest

pytestmark = pytest.mark.device(backend="htp", engine="executorch")


def test_whole(bench):
    bench.executorch("whole.pte", repeat=2).check()


def test_unreadable(bench):
    bench.executorch("unreadable.pte").check()


def test_invalid(bench):
    bench.executorch("invalid.pte").check()


def test_no_program(bench):
    bench.executorch("test_programs.py").check()


def test_no_method(bench):
    bench.executorch("whole.pte", method="backward").check()


@pytest.mark.device(backend="htp", engine="qnn")
def test_unmarked(bench):
    bench.executorch("whole.pte")
"""


@pytest.fixture(scope="module")
def cases(
    module_lab: DeviceRuns, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], dict[str, Any]]:
    need("c++", "g++", "clang++")
    folder = tmp_path_factory.mktemp("suite")
    suite = folder / "test_programs.py"
    suite.write_text(SUITE)
    shutil.copy(PROGRAM, folder / "whole.pte")
    write_damaged(folder)
    completed = module_lab.run("--qnn", "2.49.40,2.51.0", suites=suite)
    assert completed.code == 1, completed.output
    return {
        (case["case"].partition("::test_")[2].partition("[")[0], case["axes"]["qnn"]): case
        for case in completed.cases
    }


@pytest.mark.slow
def test_a_program_has_a_record_like_any_other(
    cases: dict[tuple[str, str], dict[str, Any]],
) -> None:
    case = cases["whole", "2.49.40"]
    assert (case["outcome"], case["error"], case["preflight"]) == ("passed", None, [])
    assert case["axes"]["compiler"] is None
    assert case["runtime"]["contexts_by"].startswith("2.49.40.")
    figures = case["measurements"]
    assert (figures["executorch"], figures["loaded"], figures["executed"]) == ("1.5.1", 3, 2)
    assert len(figures["load_us"]) == 3
    assert case["outputs"] == "agreement"
    assert figures["rss_bytes"]["peak"] > 10 << 20
    assert {name.rpartition(".")[2] for name in case["logs"]} >= {"plan", "jsonl"}


def test_preflight_says_which_versions_it_takes(
    cases: dict[tuple[str, str], dict[str, Any]],
) -> None:
    case = cases["whole", "2.51.0"]
    assert [item["code"] for item in case["preflight"]] == ["executorch-device"]
    error = case["error"]
    assert (error["api"], error["code"], error["context"]) == ("QnnDevice_create", 14001, None)
    assert error["diagnosis"]["id"] == "executorch-version"
    assert error["diagnosis"]["confidence"] == "known"
    assert case["preflight"][0]["explanation"] in error["diagnosis"]["words"]
    assert case["measurements"]["replay"]["outcome"] == "passed"
    assert case["measurements"]["conclusion"] == "its contexts without ExecuTorch: outcome passed"
    assert case["measurements"]["loaded"] == 0


@pytest.mark.parametrize(
    ("name", "api", "code"),
    [
        ("unreadable", "QnnSystemContext_getBinaryInfo", 30010),
        ("invalid", "QnnContext_createFromBinary", 5005),
    ],
)
def test_a_failing_context_is_replayed(
    cases: dict[tuple[str, str], dict[str, Any]], name: str, api: str, code: int
) -> None:
    case = cases[name, "2.49.40"]
    assert (case["outcome"], case["cause"]) == ("failed", "target")
    error = case["error"]
    assert (error["api"], error["code"], error["context"]) == (api, code, 1)
    assert case["outputs"] is None
    replay = case["measurements"]["replay"]
    if name == "invalid":
        assert (replay["outcome"], replay["context"], replay["alone"]) == ("failed", 1, "failed")
    else:
        assert replay["outcome"] == "unreadable"
        assert "unreadable.pte#1" in replay["error"]
    assert case["measurements"]["loaded"] == 1


def test_a_named_file_needs_no_test(module_lab: DeviceRuns, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    np.ones(16, dtype=np.float32).tofile(tmp_path / "in/x.raw")
    options = ("--engine=executorch", "--qnn=2.49.40")
    program = shutil.copy(PROGRAM, tmp_path)
    completed = module_lab.run(*options, f"--contexts-inputs={tmp_path}/in", suites=program)
    (case,) = completed.cases
    assert (completed.code, case["outcome"], case["suite"]) == (0, "passed", "run_executorch")
    assert case["case"].endswith(
        f"{PROGRAM.name}::test_program[sim-v73-htp-2.49.40-{PROGRAM.name}]"
    )
    # an output of 1024 bytes is to be compared with 64: the user's file does not fit
    wrong = module_lab.run(*options, f"--contexts-expected={tmp_path}/in", suites=program)
    assert (wrong.code, "x.raw has 64 bytes (raw), and output_0 (1024" in wrong.output) == (2, True)
    refused = module_lab.run(*options, "--contexts-number=3", suites=program)
    assert (refused.code, "no number of contexts and no residency" in refused.output) == (2, True)


@pytest.mark.slow
def test_66_contexts_meet_the_same_wall_with_and_without_executorch(
    module_lab: DeviceRuns, tmp_path: Path, context_for: ContextFor
) -> None:
    """The question of pytorch/executorch#14985, and what was forecast of it."""
    context = context_for(Model("io-heavy", 56), "2.49.40").path.read_bytes()
    program = tmp_path / "cut.pte"
    write_program(program, [context] * 66)
    fit = qnn_harness("contexts", "fit", program, "--qnn=2.49.40", "--json")
    assert json.loads(fit.stdout)["loads"] == 54, fit.stderr
    walls = []
    for engine in ("executorch", "qnn"):
        completed = module_lab.run("--qnn=2.49.40", f"--engine={engine}", suites=program)
        (case,) = completed.cases
        figures, error = case["measurements"], case["error"]
        assert case["outcome"] == "failed", completed.output
        assert error["diagnosis"]["id"] == "pd-exhausted"
        assert figures["refused_estimate_bytes"] == 66_591_232
        # which context, with which call and code, and how many had been loaded before
        walls.append((error["context"], error["api"], error["code"], figures["loaded"]))
        if engine == "executorch":
            replay = figures["replay"]
            assert (replay["outcome"], replay["context"]) == ("failed", 54)
            assert replay["alone"] == "passed"
    assert walls == [(54, "QnnContext_createFromBinary", 1002, 54)] * 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_program", "is no file of a known kind"),
        ("no_method", "method=, names one (valid: forward)"),
        ("unmarked", 'device(engine="executorch")'),
    ],
)
def test_wrong_input_is_the_users(
    cases: dict[tuple[str, str], dict[str, Any]], name: str, message: str
) -> None:
    case = cases[name, "2.49.40"]
    assert (case["outcome"], case["cause"]) == ("error", "config")
    assert message in case["error"]["message"]
