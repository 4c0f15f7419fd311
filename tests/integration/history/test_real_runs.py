"""Runs on the simulated device with the real libraries, one after the other, and what they say."""

from __future__ import annotations

import json

from harness.qnn.versions import QNN_WHEELS
from tests.integration.device_runs import DeviceRuns
from tests.integration.in_process import qnn_harness

QNN = list(QNN_WHEELS)
SUITE = """import pytest
from harness.contexts.models import Model

@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("model", [Model("tiny")], ids=str)
def test_mine(bench, model):
    bench.run_contexts([model], 1, "resident").check()
    assert bench.placement.qnn < "2.49", "too new"
"""


def test_two_nights_are_compared_and_remembered(lab: DeviceRuns) -> None:
    suite = lab.folder / "mine" / "test_mine.py"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    for version in (QNN[0], QNN[1], QNN[-1]):
        lab.run("--device", "sim-v73", "--qnn", version, suites=suite)
    newest = (lab.reports / "latest").resolve()
    done = qnn_harness("compare", "--previous", newest, "--json", "--lab", lab.file)
    told = json.loads(done.stdout)
    assert (done.returncode, told["failed_on"]) == (1, ["new"]), done.stderr
    assert told["base"] < told["run"] == newest.name
    done = qnn_harness("history", "--reports", lab.reports, "--json", "--lab", lab.file)
    said = json.loads(done.stdout)
    (case,) = said["cases"]
    assert (said["runs"], case["recent"], case["fails"]) == (3, "..F", True)
    for bisect in (told["new"][0]["bisect"], case["bisect"]):
        words = dict(zip(bisect[2::2], bisect[3::2], strict=True))
        assert (words["--good"], words["--bad"]) == (QNN[1], QNN[-1])
    assert len(list(lab.reports.glob("history.sqlite"))) == 1
