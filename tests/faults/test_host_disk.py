"""The host's disk is full: before a run, in the middle of it, and when the reports are written."""

import shutil
from pathlib import Path

import pytest

from harness.results.journal import read_journal
from tests.integration.device_runs import ROOT, RUN_TIMEOUT_S, DeviceRuns
from tests.processes import run_to_end

BYTES = 256 << 10
CONFTEST = '''"""Fills the disk with the reports at one moment."""
import os
from pathlib import Path
import pytest

def fill(moment):
    if os.environ["QNN_FAULT_FILLS"] == moment:
        with open(os.environ["QNN_FAULT_DISK"] + "/filler", "wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError:
                pass

def pytest_configure():
    fill("start")

@pytest.fixture
def filling(request):
    if "second" in request.node.name:
        fill("case")

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    fill("reporting")
'''
SUITE = '''"""Three cases, the second of which may fill the disk."""
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_case(bench, filling, name):
    bench.run(Plan((Step("noop"),))).check()
'''
MOUNTED = (
    'mount -t tmpfs -o size={size} tmpfs "$0"; "$@"; code=$?;'
    ' rm -f "$0/filler"; cp -r "$0/." "$0-after"; exit $code'
)


@pytest.mark.slow
@pytest.mark.needs("unshare")
@pytest.mark.parametrize(
    ("moment", "recorded"),
    [
        pytest.param("start", 0, marks=pytest.mark.nightly),
        ("case", 1),
        pytest.param("reporting", 3, marks=pytest.mark.nightly),
    ],
)
def test_a_full_disk_is_told_and_spoils_nothing(moment: str, recorded: int, tmp_path: Path) -> None:
    runs = DeviceRuns(tmp_path)
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "conftest.py").write_text(CONFTEST)
    (suite / "test_disk.py").write_text(SUITE)
    runs.reports.mkdir()
    after = tmp_path / "reports-after"
    after.mkdir()
    script = MOUNTED.format(size=BYTES)
    completed = run_to_end(
        *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script),
        *(runs.reports, *runs.command(suite)),
        cwd=ROOT,
        env=runs.environment | {"QNN_FAULT_FILLS": moment, "QNN_FAULT_DISK": str(runs.reports)},
        timeout=RUN_TIMEOUT_S,
    )
    journals = list(after.glob("2*/results.jsonl"))
    if recorded:
        records = [*read_journal(journals[0]).records]
        assert [record.outcome for record in records[:recorded]] == ["passed"] * recorded
    assert completed.returncode == 3, completed.stdout
    assert "No space left" in completed.stdout or "no space left" in completed.stdout
    assert "INTERNALERROR" not in completed.stdout, completed.stdout
    assert "Traceback" not in completed.stdout, completed.stdout
    shutil.rmtree(tmp_path / "simulated", ignore_errors=True)
