"""A case that went wrong carries what its device had to say; one that passed costs nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.device_runs import DeviceRuns

SUITE = '''"""A case of each kind that leaves evidence, and one that does not."""
import pytest

from harness.probe.plan import Plan, Step


@pytest.mark.device
def test_passes(bench):
    bench.run(Plan((Step("noop"),))).check()


@pytest.mark.device
def test_crashes(bench):
    bench.run(Plan((Step("crash", {"signal": "11"}),))).check()


@pytest.mark.device
def test_hangs(bench):
    bench.run(Plan((Step("hang"),)), timeout_s=3).check()


@pytest.mark.device
def test_says_no(bench):
    bench.device.transport.shell("log -t QnnDsp of this case", timeout_s=60)
    bench.device.transport.shell("log -t adsprpc SSR Detected for domain 3", timeout_s=60)
    assert False, "it must not"
'''


def test_what_the_device_says_is_kept_with_the_case(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "suite" / "test_evidence.py"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    completed = lab.run(suites=suite)
    assert completed.code == 1, completed.output
    logs = {}
    for case in completed.cases:
        name = case["case"].rpartition("::")[2].partition("[")[0]
        logs[name] = {
            path.rpartition("/")[2]: completed.folder / "latest" / path for path in case["logs"]
        }
        assert all(path.is_file() for path in logs[name].values())
    assert "evidence.json" not in logs["test_passes"]
    assert {"evidence.json", "probe.jsonl"} <= logs["test_crashes"].keys()
    assert "evidence.json" in logs["test_hangs"]
    stacks = [path for name, path in logs["test_hangs"].items() if name.startswith("process")]
    assert stacks, sorted(logs["test_hangs"])
    assert "of this case" in logs["test_says_no"]["logcat.txt"].read_text()
    assert "of this case" not in logs["test_crashes"]["logcat.txt"].read_text()
    summary = json.loads(logs["test_says_no"]["evidence.json"].read_text())
    assert summary["lost"] is None
    known = {
        case["case"].rpartition("::")[2].partition("[")[0]: case["error"]
        for case in completed.cases
    }
    assert known["test_says_no"]["diagnosis"]["id"] == "dsp-restarted"
    assert known["test_crashes"]["diagnosis"] is None
    assert "dsp-restarted (likely): the DSP restarted" in completed.output
