"""A simulated arm64 board: what is pushed, and what the libraries answer there."""

import pytest

from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import LAB, DeviceRuns


@pytest.mark.needs("qemu-aarch64")
@pytest.mark.needs("aarch64-linux-gnu-gcc")
def test_one_stub_and_one_skel_are_pushed_and_the_answer_is_kept(
    lab: DeviceRuns, runtime_for: RuntimeFor
) -> None:
    lab.file.write_text(LAB.replace("linux-x64", "linux-arm64"))
    finished = lab.run("-k", "context_count and tiny and resident-3", code=0)
    (case,) = finished.cases
    files = runtime_for("2.51.0", "linux-arm64").files
    store = lab.folder / "simulated/sim-v73/data/local/tmp/qnn-harness/store"
    stored = {path.name[:64] for path in store.iterdir()}  # a file is called by its hash
    assert sorted(file.path.name for file in files if file.sha256 in stored) == [
        *("libQnnHtp.so", "libQnnHtpV73Skel.so", "libQnnHtpV73Stub.so", "libQnnSystem.so")
    ]
    assert (case["outcome"], case["cause"]) == ("unsupported", None)
    finding = case["preflight"][0]
    assert (finding["code"], finding["severity"]) == ("needed-missing", "error")
    assert finding["files"] == ["onnxruntime_qnn/libQnnHtpV73Stub.so"]
    assert "libcdsprpc.so is needed by" in finding["explanation"]
    error = case["error"]
    assert (error["code"], error["symbol"]) == (4000, "QNN_BACKEND_ERROR_CANNOT_INITIALIZE")
    assert error["component"] == "backend"
    assert "No Snapdragon SOC detected" in error["first_cause"]["message"]
    assert case["device"]["target"] == "linux-arm64"
