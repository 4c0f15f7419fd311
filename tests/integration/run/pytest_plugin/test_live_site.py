"""A run that keeps what it is at on the front page of a site, and takes it away at its end."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from harness.answers.history.database import open_database
from harness.answers.site.build import build
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.run.pytest_plugin.test_parallel import TWO_DEVICES

WAIT_S = 300
SUITE = '''"""A case that goes on until it may end."""
import os
import time
from pathlib import Path

import pytest

from harness.probe.plan import Plan, Step


@pytest.mark.device
def test_at_work(bench):
    bench.run(Plan((Step("sleep", {"ms": "10"}),))).check()
    end = time.monotonic() + 300
    while not Path(os.environ["GATE"]).exists() and time.monotonic() < end:
        time.sleep(0.05)
'''


@pytest.mark.nightly
def test_workers_are_seen_on_the_front_page_while_they_are_at_it(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    lab.file.write_text(TWO_DEVICES)
    suite, out, gate = tmp_path / "suite/test_it.py", tmp_path / "site", tmp_path / "gate"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    build(open_database(str(tmp_path / "h.sqlite")), out)
    page = out / "index.html"
    command = lab.command("-n", "2", "-q", "--site", out, suite)
    environment = lab.environment | {"GATE": str(gate)}
    run = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + WAIT_S
        while (said := page.read_text()).count("test_at_work[sim-") < 2:
            assert run.poll() is None, "it ended before it was seen"
            assert time.monotonic() < end, said
            time.sleep(0.1)
        assert '<section id="now"' in said
        assert "0 of 2 cases are over" in said
        # a site that is written anew meanwhile keeps what the run says
        build(open_database(str(tmp_path / "h.sqlite")), out)
        assert '<section id="now"' in page.read_text()
    finally:
        gate.touch()
        assert run.wait(WAIT_S) == 0
    assert "test_at_work" not in page.read_text()
    assert "Nothing is held yet" in page.read_text()
