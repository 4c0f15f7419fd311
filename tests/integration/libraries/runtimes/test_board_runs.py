"""Simulated arm64 boards: what is pushed and answered, libraries from all places, bad mixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import DeviceRuns
from tests.integration.libraries.runtimes.real_layouts import (
    aar,
    folder_of,
    maven_repository,
    qairt_tree,
)

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]

CASE = ("-k", "context_count and tiny and resident-3")
LAB = """schema: 1
devices:
  - {name: sim-arm64, simulated: true, soc: QCS8550, target: linux-arm64}
  - {name: sim-arm64-sm8650, simulated: true, soc: SM8650, target: linux-arm64, shows_soc: true}
"""
GPU_SUITE = """
import pytest
from harness.contexts.compiler.models import Model

@pytest.mark.device
def test_gpu(bench):
    bench.run_contexts([Model("tiny")], 1, "resident").check()
"""
NO_RPC = {
    "code": "needed-missing",
    "severity": "error",
    "files": ["onnxruntime_qnn/libQnnHtpV73Stub.so"],
}
PUSHED = ["libQnnHtp.so", "libQnnHtpV73Skel.so", "libQnnHtpV73Stub.so", "libQnnSystem.so"]


@pytest.fixture
def boards(tmp_path: Path) -> DeviceRuns:
    (tmp_path / "lab").mkdir()
    runs = DeviceRuns(tmp_path / "lab")
    runs.file.write_text(LAB)
    return runs


def only_case(runs: DeviceRuns, *arguments: object) -> dict[str, Any]:
    done = runs.run(*arguments, *CASE)
    (case,) = done.cases
    return case | {"code": done.code, "output": done.output}


def pushed_libraries(runs: DeviceRuns, device: str) -> list[str]:
    (folder,) = (runs.folder / "simulated" / device).glob("data/local/tmp/qnn-harness/sets/qnn-*")
    return sorted(path.name for path in folder.rglob("*.so*"))


def test_one_stub_and_one_skel_are_pushed_and_the_answer_is_kept(boards: DeviceRuns) -> None:
    case = only_case(boards, "--device", "sim-arm64")
    assert case["code"] == 0, case["output"]
    assert pushed_libraries(boards, "sim-arm64") == PUSHED
    assert (case["outcome"], case["cause"]) == ("unsupported", None)
    assert {name: case["preflight"][0][name] for name in NO_RPC} == NO_RPC
    assert "libcdsprpc.so is needed by" in case["preflight"][0]["explanation"]
    error = case["error"]
    assert (error["code"], error["symbol"]) == (4000, "QNN_BACKEND_ERROR_CANNOT_INITIALIZE")
    assert error["component"] == "backend"
    assert "No Snapdragon SOC detected" in error["first_cause"]["message"]
    assert case["device"]["target"] == "linux-arm64"


@pytest.mark.nightly
def test_the_gpu_of_a_board_without_one(boards: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "suite/test_gpu.py"
    suite.parent.mkdir()
    suite.write_text(GPU_SUITE)
    done = boards.run("--device", "sim-arm64", "--backend", "gpu", suites=suite)
    (case,) = done.cases
    assert pushed_libraries(boards, "sim-arm64") == ["libQnnGpu.so", "libQnnSystem.so"]
    # the suite's contexts are compiled for the HTP, which is said before anything is tried
    assert (case["outcome"], case["error"]["code"]) == ("unsupported", None)
    assert "HTP" in case["error"]["message"]


@pytest.mark.nightly
def test_a_board_that_tells_its_soc_gets_as_far_as_the_skel(boards: DeviceRuns) -> None:
    """It is asked once: its other cases have the same answer, and say where that is from."""
    wanted = ("-k", "context_count and tiny and resident")
    done = boards.run("--device", "sim-arm64-sm8650", *wanted)
    case, *others = done.cases
    assert any(log.endswith("probe.jsonl") for log in case["logs"])
    assert others
    for other in others:
        assert (other["outcome"], other["cause"]) == ("unsupported", None)
        for key in ("api", "code", "step", "signature", "chain"):
            assert other["error"][key] == case["error"][key]
        folder = case["logs"][0].split("/")[1]
        assert f"not asked again: logs/{folder}" in other["error"]["message"]
        assert other["logs"] == []
    assert case["outcome"] == "unsupported"
    error = case["error"]
    assert error["code"] == 14001
    messages = [link["message"] for link in error["chain"]]
    skel = next(
        at for at, text in enumerate(messages) if "Failed to load skel, error: 4000" in text
    )
    setup = next(at for at, text in enumerate(messages) if "setup failed: 14001" in text)
    assert skel < setup < len(messages)
    assert error["first_cause"] == error["chain"][0]
    assert "libcdsprpc.so" in error["first_cause"]["message"]
    assert error["chain"][-1]["code"] == 14001


def test_a_version_of_appbuilder_gets_as_far_as_the_skel(boards: DeviceRuns) -> None:
    case = only_case(boards, "--device", "sim-arm64-sm8650", "--qnn", "2.51.40")
    assert (case["outcome"], case["error"]["code"]) == ("unsupported", 14001), case["output"]
    runtime = case["runtime"]
    assert (runtime["qnn"], runtime["source"]) == ("2.51.40", "appbuilder")
    assert runtime["build_id"] == "2.51.40.260930230134"
    assert case["axes"]["compiler"] == "2.51.0"
    assert [one["code"] for one in case["preflight"]] == ["needed-missing"]  # libcdsprpc.so
    messages = [link["message"] for link in case["error"]["chain"]]
    assert any("Failed to load skel, error: 4000" in text for text in messages)


@pytest.mark.parametrize(
    "kind",
    ["maven", *(pytest.param(k, marks=pytest.mark.nightly) for k in ("qairt", "aar", "folder"))],
)
def test_libraries_from_every_place_run(
    kind: str, boards: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path
) -> None:
    runtime = runtime_for("2.51.0", "linux-arm64")
    lines = {
        "qairt": "path: ../libs",
        "aar": "path: ../libs.aar, target: linux-arm64",
        "maven": 'coordinates: "com.qualcomm.qti:qnn-runtime", repository: ../libs, '
        "target: linux-arm64",
        "folder": "path: ../libs",
    }
    if kind == "qairt":
        qairt_tree(tmp_path / "libs", runtime_for("2.51.0"), runtime)
    elif kind == "aar":
        aar(tmp_path / "libs.aar", runtime.files)
    elif kind == "maven":
        maven_repository(tmp_path / "libs", "2.51.0", runtime.files)
    else:
        folder_of(tmp_path / "libs", runtime.files)
    boards.file.write_text(f"{LAB}runtimes:\n  - {{name: own, kind: {kind}, {lines[kind]}}}\n")
    case = only_case(boards, "--device", "sim-arm64", "--qnn", "own:latest")
    assert (case["outcome"], case["error"]["code"]) == ("unsupported", 4000), case["output"]
    assert case["runtime"]["source"] == "own"
    assert case["runtime"]["build_id"] == "2.51.0.260929181845"
    assert [one["code"] for one in case["preflight"]] == ["needed-missing"]  # libcdsprpc.so
    assert case["axes"]["compiler"] == "2.51.0"
    assert pushed_libraries(boards, "sim-arm64") == PUSHED


@pytest.mark.nightly
def test_a_skel_of_another_build(
    boards: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path
) -> None:
    new, old = (runtime_for(version, "linux-arm64") for version in ("2.51.0", "2.47.0"))
    skel = "libQnnHtpV75Skel.so"
    files = [file for file in new.files if file.path.name != skel]
    folder_of(tmp_path / "mixed", [*files, *(f for f in old.files if f.path.name == skel)])
    case = only_case(boards, "--device", "sim-arm64-sm8650", f"--qnn={tmp_path / 'mixed'}")
    _, finding = case["preflight"]
    assert (finding["code"], finding["severity"]) == ("sdk-mix", "error")
    assert finding["files"] == [f"lib/{skel}", "lib/libQnnHtp.so"]
    assert case["error"]["code"] == 14001  # without a DSP nobody opens it


@pytest.mark.nightly
def test_a_skel_of_another_arch_and_no_stub(
    boards: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path
) -> None:
    files = {file.path.name: file for file in runtime_for("2.51.0", "linux-arm64").files}
    folder_of(
        tmp_path / "mixed",
        [files[name] for name in ("libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV75Skel.so")],
    )
    given = f"--qnn={tmp_path / 'mixed'}"
    case = only_case(boards, "--device", "sim-arm64", given)
    assert [one["code"] for one in case["preflight"]] == ["skel-missing", "stub-missing"]
    assert case["preflight"][0]["files"] == ["lib/libQnnHtpV75Skel.so"]
    assert case["error"]["code"] == 4000
    captured = only_case(boards, "--device", "sim-arm64", given, "--preflight", "off")
    assert (captured["preflight"], captured["error"]["code"]) == ([], 4000)


@pytest.mark.nightly
def test_libraries_for_this_host_on_a_board(
    boards: DeviceRuns, runtime_for: RuntimeFor, tmp_path: Path
) -> None:
    folder_of(tmp_path / "wrong", runtime_for("2.51.0").files)
    boards.file.write_text(
        f"{LAB}runtimes:\n"
        "  - {name: wrong, kind: folder, path: ../wrong, target: linux-arm64, version: 2.51.0}\n"
    )
    case = only_case(boards, "--device", "sim-arm64", "--qnn", "wrong:latest")
    wrong = {
        file for one in case["preflight"] if one["code"] == "wrong-machine" for file in one["files"]
    }
    assert {"lib/libQnnHtp.so", "lib/libQnnSystem.so"} <= wrong
    assert (case["outcome"], case["error"]["api"]) == ("failed", "dlopen")
