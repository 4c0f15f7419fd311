"""Two nights with a failure that is the library's own: too many contexts, from QNN 2.49 on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.integration.device_runs import ROOT, DeviceRuns

CASE = "context_count and io-heavy-56mb-resident-66"
pytestmark = pytest.mark.nightly


def words(lab: DeviceRuns, qnn: str) -> list[str]:
    none = lab.folder / "known.yaml"
    none.write_text("schema: 1\nknown_issues: []\n")
    base = [sys.executable, "-m", "harness.cli.main", "nightly", "--budget", "30m", "--json"]
    base += ["--lab", str(lab.file), "--reports", str(lab.reports), "-p", "no:cacheprovider"]
    base += ["--known-issues", str(none), "--compiler", "2.47.0", "--qnn", qnn]
    return [*base, "-k", CASE, "suites/test_context_count.py"]


def test_the_protection_domain_that_is_full(lab: DeviceRuns) -> None:
    messages = []
    for qnn in ("2.48.40", "2.51.0"):
        if messages:  # the second night is killed once its bisection has an answer
            with subprocess.Popen(words(lab, qnn), cwd=ROOT, env=lab.environment) as killed:
                until = time.monotonic() + 300
                while not any(
                    '"answered"' in log.read_text()
                    for log in lab.reports.glob("*-bisect/log.jsonl")
                ):
                    assert killed.poll() is None
                    assert time.monotonic() < until
                    time.sleep(0.1)
                os.kill(killed.pid, signal.SIGKILL)
        completed = subprocess.run(
            words(lab, qnn),
            cwd=ROOT,
            env=lab.environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=600,
            check=False,
        )
        messages.append((completed.returncode, json.loads(completed.stdout)))
    (first_code, first), (code, second) = messages
    assert (first_code, first["issues"]) == (0, [])
    assert (code, second["base"], second["failed_on"]) == (1, first["run"], ["new"])
    (issue,) = second["issues"]
    assert issue["diagnosis"].startswith("pd-exhausted (known): ")
    assert issue["search"]["answer"] == "last good 2.48.40, first bad 2.49.40"
    (log,) = lab.reports.glob("*-bisect/log.jsonl")
    answered_lines = [line for line in log.read_text().splitlines() if '"answered"' in line]
    assert len(answered_lines) <= 3, "of the versions 2.48.40 to 2.51.0 each once at most"
    (file,) = lab.reports.glob("latest-nightly/issues/*.md")
    title = f"# `failed: pd-exhausted in test_context_count` [{file.stem}]"
    assert file.read_text().startswith(f"{title}\n\nState: open\n")
