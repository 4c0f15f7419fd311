"""A build of ExecuTorch's own `qnn_executor_runner` runs programs in place of the probe.

The wheel has no such program: a stand-in (tests/stand_in) prints and writes what it does, over the
wheel's libraries, so that every code is the real library's.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.probe.build import _EXECUTORCH_DEFINES, _EXECUTORCH_HEADERS, _EXECUTORCH_LIBRARIES
from harness.runtimes.catalog import Catalog
from harness.runtimes.ort import EXECUTORCH_LIBRARIES, RUNNER
from harness.runtimes.pypi import LIBRARY_FOLDER
from tests.integration.device_runs import DeviceRuns
from tests.integration.in_process import qnn_harness
from tests.integration.plugin.executorch_programs import (
    LOWERED as PROGRAM,
    write_damaged,
)
from tests.needed import need

ROOT = Path(__file__).parents[3]
STAND_IN = ROOT / "tests/stand_in/qnn_executor_runner_stand_in.cpp"


@pytest.fixture(scope="module")
def build(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder as ExecuTorch's CMake leaves it."""
    need("c++", "g++", "clang++")
    wheel = catalog.executorch("linux-x64").path / "executorch"
    folder = tmp_path_factory.mktemp("build-x86")
    runner = folder / "examples/qualcomm/executor_runner" / RUNNER
    libraries = folder / "backends/qualcomm"
    for made in (runner.parent, libraries):
        made.mkdir(parents=True)
    for name in EXECUTORCH_LIBRARIES:
        shutil.copy(wheel / "lib" / name, libraries)
    headers = [f"-isystem{wheel / part}" for part in _EXECUTORCH_HEADERS]
    command = ["c++", "-std=c++17", "-O1", *_EXECUTORCH_DEFINES, *headers, str(STAND_IN)]
    command += ["-o", str(runner), f"-L{wheel / 'lib'}", *_EXECUTORCH_LIBRARIES, "-lpthread"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return folder


def run(lab: DeviceRuns, build: Path, *arguments: object) -> tuple[int, str, list[dict[str, Any]]]:
    return lab.run_files(*arguments, "--engine=executorch", f"--executorch={build}")


@pytest.mark.slow
def test_a_program_runs_with_a_build_of_ones_own(lab: DeviceRuns, build: Path) -> None:
    (lab.folder / "in").mkdir()
    np.save(lab.folder / "in/x.npy", np.ones(16, np.float32))
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
    assert error["diagnosis"] is None or error["diagnosis"]["id"]
    assert refused["measurements"]["replay"]["outcome"] == "passed"
    code, output, (wrong,) = run(lab, build, PROGRAM, "--expected", zeros(lab))
    assert "running with QNN 2.49.40: it made the contexts; --qnn names another" in output
    assert wrong["axes"]["qnn"] == "2.49.40"
    assert (code, wrong["outcome"], wrong["cause"]) == (1, "failed", "target"), output
    assert "output 0 has" in wrong["error"]["message"]


def zeros(lab: DeviceRuns) -> Path:
    np.zeros(256, np.float32).tofile(lab.folder / "zeros.raw")
    return lab.folder / "zeros.raw"


@pytest.mark.slow
def test_a_bundle_says_how_the_runner_is_started(
    lab: DeviceRuns, build: Path, catalog: Catalog
) -> None:
    (lab.folder / "in").mkdir()
    np.save(lab.folder / "in/x.npy", np.ones(16, np.float32))
    code, output, (record,) = run(
        lab, build, PROGRAM, "--qnn=2.49.40", "--inputs=in", "--expected", zeros(lab)
    )
    assert (code, record["outcome"]) == (1, "failed"), output
    packed = lab.qnn_harness("contexts", "bundle", record["case"], "--output=case.zip")
    assert packed.returncode == 0, packed.stderr
    folder = lab.folder / "unpacked"
    shutil.unpack_archive(lab.folder / "case.zip", folder)
    words = (folder / "README.txt").read_text().split("  mkdir outputs\n")[1].partition("\n\n")[0]
    qnn = catalog.pypi.folder("2.49.40", "linux-x64").path / LIBRARY_FOLDER
    runner = build / "examples/qualcomm/executor_runner"
    completed = subprocess.run(
        f"mkdir outputs && {words}",
        shell=True,
        cwd=folder,
        env={
            "PATH": f"{runner}:/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{build / 'backends/qualcomm'}:{qnn}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_the_context_that_fails_is_named_with_the_librarys_code(
    lab: DeviceRuns, build: Path
) -> None:
    write_damaged(lab.folder)
    code, output, records = run(lab, build, "unreadable.pte", "invalid.pte", "--qnn=2.49.40")
    assert code == 1, output
    by_workload = {record["axes"]["workload"]: record for record in records}
    for name, api, expected in (
        ("unreadable.pte", "QnnSystemContext_getBinaryInfo", 30010),
        ("invalid.pte", "QnnContext_createFromBinary", 5005),
    ):
        error = by_workload[name]["error"]
        assert by_workload[name]["outcome"] == "failed", output
        assert (error["api"], error["code"], error["context"]) == (api, expected, 1)
        assert by_workload[name]["measurements"]["loaded"] == 1
        replay = by_workload[name]["measurements"]["replay"]
        assert replay["outcome"] == ("failed" if expected == 5005 else "unreadable")


@pytest.mark.nightly
def test_what_is_no_build_for_the_device_is_refused(
    lab: DeviceRuns, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.folder)
    for words, message in (
        (("--engine=executorch", f"--executorch={tmp_path}"), f"no {RUNNER} in it"),
        ((f"--executorch={build}",), "the engine qnn does without ExecuTorch"),
    ):
        completed = qnn_harness("run", "--json", PROGRAM, *words, environment=lab.environment)
        assert (completed.returncode, message in completed.stderr) == (2, True), completed.stderr
    shutil.copytree(build, tmp_path / "half")
    for name in EXECUTORCH_LIBRARIES[1:]:
        (tmp_path / "half/backends/qualcomm" / name).unlink()
    code, output, _ = run(lab, tmp_path / "half", PROGRAM, "--qnn=2.49.40")
    assert (code, "does not start" in output) == (2, True), output
    completed = lab.qnn_harness(
        "run", PROGRAM, "--engine=executorch", f"--executorch={build}", "--qnn=2.49.40", "--plan"
    )
    assert (completed.returncode, f"{RUNNER}  [ExecuTorch own build]" in completed.stdout) == (
        0,
        True,
    )
