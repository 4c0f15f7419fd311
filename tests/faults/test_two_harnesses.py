"""Two harnesses on one device at the same time, both of which find it empty."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.adb.device import AdbDevice
from harness.results.journal import read_journal
from tests.faults.breakable import BreakableLab
from tests.faults.cases_under_fault import left_behind
from tests.faults.conftest import HERE, daemon_parameters
from tests.faults.table import BOTH
from tests.integration.device_runs import ROOT, Finished

SUITE = HERE / "ended_suite/cases_that_end.py"


@pytest.mark.parametrize("daemon", daemon_parameters(BOTH))
def test_both_do_their_work(daemon: str, tmp_path: Path) -> None:
    with BreakableLab(tmp_path, daemon, None) as lab:

        def run(name: str) -> Finished:
            reports = ("--reports", tmp_path / name)
            return lab.run("--device", "main", *reports, suites=SUITE, PYTHONPATH=str(ROOT))

        with ThreadPoolExecutor(2) as pool:
            for name, done in zip("ab", pool.map(run, "ab"), strict=True):
                assert done.code == 0, done.output
                contents = read_journal(tmp_path / name / "latest/results.jsonl")
                assert contents.damage == ()
                # what one takes from under the other may cost an attempt, but never a verdict
                last = {record.case: record.outcome for record in contents.records}
                assert list(last.values()) == ["passed"] * 3
                outcomes = {(record.outcome, record.cause) for record in contents.records}
                assert outcomes <= {("passed", None), ("error", "infra")}
        device = AdbDevice(lab.link.address, lab.server)
        assert left_behind(device, lab.workdir) == ""
