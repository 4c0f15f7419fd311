"""Two harnesses on one device: of one host one after the other, of two hosts at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.results.journal import read_journal
from harness.transport.adb_device import AdbDevice
from tests.faults.breakable import BreakableLab
from tests.faults.cases_under_fault import left_behind
from tests.faults.conftest import HERE, daemon_parameters
from tests.faults.table import ALL, ANDROID, REAL
from tests.integration.device_runs import ROOT, Finished

SUITE = HERE / "ended_suite/cases_that_end.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("daemon", "hosts"),
    [
        *daemon_parameters(ALL, "one-host", by_night=(REAL, ANDROID)),
        *daemon_parameters(ALL, "two-hosts", by_night=ALL),
    ],
)
def test_both_do_their_work(daemon: str, hosts: str, tmp_path: Path) -> None:
    """Hosts share no leases: their harnesses both find the device empty and fill it at once."""
    with BreakableLab(tmp_path, daemon, None) as lab:

        def run(name: str) -> Finished:
            reports = ("--reports", tmp_path / name)
            leases = tmp_path / ("leases" if hosts == "one-host" else f"leases-{name}")
            settings = {"PYTHONPATH": str(ROOT), "QNN_HARNESS_LEASES": str(leases)}
            return lab.run("--device", "main", *reports, suites=SUITE, **settings)

        with ThreadPoolExecutor(2) as pool:
            both = dict(zip("ab", pool.map(run, "ab"), strict=True))
            waited = sum(
                "for device main: held by" in completed.output for completed in both.values()
            )
            assert bool(waited) == (hosts == "one-host")
            for name, completed in both.items():
                assert completed.code == 0, completed.output
                contents = read_journal(tmp_path / name / "latest/results.jsonl")
                assert contents.damage == ()
                # what one takes from under the other may cost an attempt, but never a verdict
                last = {record.case: record.outcome for record in contents.records}
                assert list(last.values()) == ["passed"] * 3
                outcomes = {(record.outcome, record.cause) for record in contents.records}
                assert outcomes <= {("passed", None), ("error", "infra")}
        device = AdbDevice(lab.link.address, lab.server)
        assert left_behind(device, lab.workdir) == ""
