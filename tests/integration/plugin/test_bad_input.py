"""Mistakes and missing things end in one clear message and the right exit code."""

from __future__ import annotations

from pathlib import Path

from tests.integration.device_runs import DeviceRuns, Finished

OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "",
    "PIP_CONFIG_FILE": "/dev/null",
    "PIP_EXTRA_INDEX_URL": "",
}


def says_once(completed: Finished, text: str) -> None:
    told = [line for line in completed.output.splitlines() if not line.startswith("rootdir:")]
    lines = [line for line in told if text in line]
    assert len(lines) == 1, completed.output
    assert "Traceback" not in completed.output, completed.output


def test_an_unknown_choice(lab: DeviceRuns) -> None:
    completed = lab.run("--qnn", "2.99.0", "-k", "tiny and 66")
    assert completed.code == 2, completed.output
    says_once(completed, "2.99.0")
    assert "2.51.0" in completed.output


def test_no_network_on_the_first_run(lab: DeviceRuns, tmp_path: Path) -> None:
    completed = lab.run("-k", "tiny and 66", QNN_HARNESS_CACHE=str(tmp_path / "cache"), **OFFLINE)
    assert completed.code == 3, completed.output
    says_once(completed, "onnxruntime-qnn")
    ends = [(case["outcome"], case["cause"], case["attempt"]) for case in completed.cases]
    assert ends == [("error", "infra", 1)] * 3
    assert "could not fetch onnxruntime-qnn" in completed.cases[-1]["error"]["message"]


def test_a_full_device(lab: DeviceRuns) -> None:
    lab.file.write_text(lab.file.read_text() + "    storage_limit_mb: 30\n")
    completed = lab.run("-k", "tiny and 66")
    assert completed.code == 3, completed.output
    says_once(completed, "No space left on device")
    size = sum(path.stat().st_size for path in (lab.folder / "simulated").rglob("*.so"))
    assert size == 0
