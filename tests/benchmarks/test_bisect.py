"""A bisection over all wheels beside a shell loop that tries every version."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.qnn.versions import QNN_WHEELS
from tests.integration.bisect.bisections import PLAIN, bisect
from tests.integration.device_runs import ROOT, DeviceRuns

QNN = list(QNN_WHEELS)


@pytest.mark.benchmark
def test_beside_a_shell_loop(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    lab = DeviceRuns(tmp_path)
    chosen = "tiny and sequential-1 and not 100"
    lab.run("-k", chosen, "--qnn", QNN[0], "--compiler", "all")  # everything is cached from here on
    began = time.monotonic()
    done = bisect(lab, "--case", PLAIN, "--axis", "compiler", "--qnn", QNN[0])
    bisect_s = time.monotonic() - began
    assert done.result["answer"]["first_bad"] == QNN[1]
    began = time.monotonic()
    base = lab.command("-k", chosen, "--qnn", QNN[0], ROOT / "suites")
    for version in QNN:
        subprocess.run(
            [*base, "--compiler", version],
            cwd=ROOT,
            env=lab.environment,
            stdout=subprocess.DEVNULL,
            timeout=300,
            check=False,
        )
    loop_s = time.monotonic() - began
    show_figures(
        "bisect beside a loop over all versions",
        bisect_s=round(bisect_s, 1),
        loop_s=round(loop_s, 1),
        ratio=round(bisect_s / loop_s, 2),
        runs=f"{len(done.result['runs'])} of {len(QNN)}",
    )
