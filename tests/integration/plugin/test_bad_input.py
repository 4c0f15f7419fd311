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


def says_once(done: Finished, text: str) -> None:
    told = [line for line in done.output.splitlines() if not line.startswith("rootdir:")]
    lines = [line for line in told if text in line]
    assert len(lines) == 1, done.output
    assert "Traceback" not in done.output, done.output


def test_an_unknown_choice(lab: DeviceRuns) -> None:
    done = lab.run("--qnn", "2.99.0", "-k", "tiny and 66")
    assert done.code == 2, done.output
    says_once(done, "2.99.0")
    assert "2.51.0" in done.output


def test_no_network_on_the_first_run(lab: DeviceRuns, tmp_path: Path) -> None:
    done = lab.run("-k", "tiny and 66", QNN_HARNESS_CACHE=str(tmp_path / "cache"), **OFFLINE)
    assert done.code == 3, done.output
    says_once(done, "onnxruntime-qnn")
    ends = [(case["outcome"], case["cause"], case["attempt"]) for case in done.cases]
    assert ends == [("error", "infra", 1)] * 3
    assert "could not fetch onnxruntime-qnn" in done.cases[-1]["error"]["message"]


def test_a_full_device(lab: DeviceRuns) -> None:
    lab.file.write_text(lab.file.read_text() + "    storage_limit_mb: 30\n")
    done = lab.run("-k", "tiny and 66")
    assert done.code == 3, done.output
    says_once(done, "No space left on device")
    left = sum(path.stat().st_size for path in (lab.folder / "simulated").rglob("*.so"))
    assert left == 0
