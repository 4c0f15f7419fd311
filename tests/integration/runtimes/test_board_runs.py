"""Simulated arm64 boards: what is pushed and answered, libraries from all places, bad mixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.runtimes.runtime import Runtime
from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import DeviceRuns

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]

CASE = ("-k", "context_count and tiny and resident-3")
LAB = """schema: 1
devices:
  - {name: sim-arm64, simulated: true, soc: QCS8550, target: linux-arm64}
  - {name: sim-arm64-sm8650, simulated: true, soc: SM8650, target: linux-arm64, shows_soc: true}
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
    finished = runs.run(*arguments, *CASE)
    (case,) = finished.cases
    return case | {"code": finished.code, "output": finished.output}


def pushed_libraries(runs: DeviceRuns, device: str, runtime: Runtime) -> list[str]:
    """Those of a runtime that lie in the store, where a file is called by its hash."""
    store = runs.folder / "simulated" / device / "data/local/tmp/qnn-harness/store"
    stored = {path.name[:64] for path in store.iterdir()}
    return sorted(file.path.name for file in runtime.files if file.sha256 in stored)


def test_one_stub_and_one_skel_are_pushed_and_the_answer_is_kept(
    boards: DeviceRuns, runtime_for: RuntimeFor
) -> None:
    case = only_case(boards, "--device", "sim-arm64")
    assert case["code"] == 0, case["output"]
    runtime = runtime_for("2.51.0", "linux-arm64")
    assert pushed_libraries(boards, "sim-arm64", runtime) == PUSHED
    assert (case["outcome"], case["cause"]) == ("unsupported", None)
    assert {name: case["preflight"][0][name] for name in NO_RPC} == NO_RPC
    assert "libcdsprpc.so is needed by" in case["preflight"][0]["explanation"]
    error = case["error"]
    assert (error["code"], error["symbol"]) == (4000, "QNN_BACKEND_ERROR_CANNOT_INITIALIZE")
    assert error["component"] == "backend"
    assert "No Snapdragon SOC detected" in error["first_cause"]["message"]
    assert case["device"]["target"] == "linux-arm64"
