"""Programs of ExecuTorch as a user runs them: records like any other, and what a failure is of."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.engines.executorch_files import LIBRARIES, RUNNER, executorch_folder
from harness.probe.build import _EXECUTORCH_DEFINES, _EXECUTORCH_HEADERS, _EXECUTORCH_LIBRARIES
from harness.runtimes.catalog import Catalog
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.needed import need
from tests.unit.containers.made import EXECUTORCH, FIELD

PROGRAM = FIELD / "executorch-3-contexts.pte"
WRAPPER = struct.pack("<I", EXECUTORCH)
WRAPPER_BYTES = 256
Cases = dict[tuple[str, str], dict[str, Any]]
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


def write_damaged(folder: Path) -> None:
    """The program with its second context damaged: unreadable.pte, and invalid.pte."""
    for name, offset, count in (("unreadable", 40, 4), ("invalid", -600, 500)):
        content = bytearray(PROGRAM.read_bytes())
        blob = content.index(WRAPPER, content.index(WRAPPER) + 1)
        size = int.from_bytes(content[blob + 12 : blob + 20], "little")
        begin = blob + WRAPPER_BYTES + offset % size
        content[begin : begin + count] = b"\xff" * count
        (folder / f"{name}.pte").write_bytes(content)


@pytest.fixture(scope="module")
def cases(module_lab: DeviceRuns, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    need("c++", "g++", "clang++")
    folder = tmp_path_factory.mktemp("suite")
    suite = folder / "test_programs.py"
    suite.write_text(SUITE)
    shutil.copy(PROGRAM, folder / "whole.pte")
    write_damaged(folder)
    completed = module_lab.run("--qnn", "2.49.40,2.51.0", suites=suite, code=1)
    return {
        (case["case"].partition("::test_")[2].partition("[")[0], case["axes"]["qnn"]): case
        for case in completed.cases
    }


@pytest.mark.slow
def test_a_program_has_a_record_like_any_other(cases: Cases) -> None:
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


def test_preflight_says_which_versions_it_takes(cases: Cases) -> None:
    case = cases["whole", "2.51.0"]
    assert [item["code"] for item in case["preflight"]] == ["executorch-device"]
    error = case["error"]
    assert (error["api"], error["code"], error["context"]) == ("QnnDevice_create", 14001, None)
    assert error["diagnosis"]["id"] == "executorch-version"
    assert error["diagnosis"]["confidence"] == "known"
    assert case["preflight"][0]["explanation"] in error["diagnosis"]["words"]
    assert case["measurements"]["replay"]["outcome"] == "passed"
    assert case["measurements"]["loaded"] == 0


@pytest.mark.parametrize(
    ("name", "api", "code"),
    [
        ("unreadable", "QnnSystemContext_getBinaryInfo", 30010),
        ("invalid", "QnnContext_createFromBinary", 5005),
    ],
)
def test_a_failing_context_is_replayed(cases: Cases, name: str, api: str, code: int) -> None:
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


@pytest.mark.parametrize("name", ["no_program", "no_method", "unmarked"])
def test_wrong_input_is_the_users(cases: Cases, name: str) -> None:
    case = cases[name, "2.49.40"]
    assert (case["outcome"], case["cause"]) == ("error", "config")


# prints and writes what that program does, over the wheel's libraries: all codes are the real ones
STAND_IN = ROOT / "tests/stand_in/qnn_executor_runner_stand_in.cpp"


@pytest.fixture(scope="module")
def build(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder as ExecuTorch's CMake leaves it."""
    need("c++", "g++", "clang++")
    wheel = executorch_folder(catalog.wheels, "linux-x64").path / "executorch"
    folder = tmp_path_factory.mktemp("build-x86")
    runner = folder / "examples/qualcomm/executor_runner" / RUNNER
    libraries = folder / "backends/qualcomm"
    for made in (runner.parent, libraries):
        made.mkdir(parents=True)
    for name in LIBRARIES:
        shutil.copy(wheel / "lib" / name, libraries)
    headers = [f"-isystem{wheel / part}" for part in _EXECUTORCH_HEADERS]
    command = ["c++", "-std=c++17", "-O1", *_EXECUTORCH_DEFINES, *headers, str(STAND_IN)]
    command += ["-o", str(runner), f"-L{wheel / 'lib'}", *_EXECUTORCH_LIBRARIES, "-lpthread"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return folder


def run(lab: DeviceRuns, build: Path, *arguments: object) -> tuple[int, str, list[dict[str, Any]]]:
    return lab.run_files(*arguments, "--engine=executorch", "--", "-o", f"qnn_executorch={build}")


@pytest.mark.slow
def test_a_program_runs_with_a_build_of_ones_own(lab: DeviceRuns, build: Path) -> None:
    (lab.folder / "in").mkdir()
    np.save(lab.folder / "in/0.npy", np.ones(16, np.float32))
    code, output, records = run(lab, build, PROGRAM, "--qnn=2.49.40,2.51.0", "--inputs=in")
    assert (code, len(records)) == (1, 2), output
    fine, refused = records
    assert (fine["outcome"], fine["outputs"], fine["error"]) == ("passed", "agreement", None)
    figures = fine["measurements"]
    assert (figures["executorch"], figures["loaded"], figures["executed"]) == ("own build", 3, 2)
    assert figures["execute_us"] == [1500, 1500]
    assert len(figures["load_us"]) == 3
    assert fine["runtime"]["contexts_by"].startswith("2.49.40.")
    # of a build of the user's nobody knows which QNN it takes
    assert refused["preflight"] == []
    assert (refused["outcome"], refused["cause"]) == ("failed", "target")
    error = refused["error"]
    assert (error["api"], error["code"], error["context"]) == ("QnnDevice_create", 14001, None)
    assert refused["measurements"]["replay"]["outcome"] == "passed"
    np.zeros(256, np.float32).tofile(lab.folder / "zeros.raw")
    code, output, (wrong,) = run(lab, build, PROGRAM, "--expected", lab.folder / "zeros.raw")
    assert wrong["axes"]["qnn"] == "2.49.40"
    assert (code, wrong["outcome"], wrong["cause"]) == (1, "failed", "target"), output
    # the context that fails is named with the library's code
    write_damaged(lab.folder)
    code, output, (damaged,) = run(lab, build, "invalid.pte", "--qnn=2.49.40")
    error = damaged["error"]
    expected = ("QnnContext_createFromBinary", 5005, 1)
    assert (error["api"], error["code"], error["context"]) == expected, output
    assert damaged["measurements"]["loaded"] == 1
    assert damaged["measurements"]["replay"]["outcome"] == "failed"
