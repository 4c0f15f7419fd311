"""A fault of ours at the end of a session is no failure of a test: pytest would end with 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.device_runs import WITHOUT_HYPOTHESIS

PLANTED = """
from harness.plugin import device_run, plugin
from harness.core.errors import ConfigError, InfraError

def fails(*_, **__):
    raise {error}

{name} = fails
"""
FOREIGN = "def pytest_sessionfinish():\n    raise ValueError('a plug-in of others')\n"


def ended(folder: Path, conftest: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_plain.py").write_text("def test_plain(): pass\n")
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = {WITHOUT_HYPOTHESIS}\n")
    command = [sys.executable, "-m", "pytest", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name", ["plugin.end_session", "device_run.Records.release", "device_run.Run.close"]
)
@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        ("ValueError('planted')", 3, "error: internal error: ValueError: planted; `-v` prints"),
        ("InfraError('the disk is full')", 3, "error: the disk is full"),
        ("ConfigError('a file is gone')", 2, "error: a file is gone"),
    ],
)
def test_the_end_of_a_session(tmp_path: Path, name: str, error: str, code: int, line: str) -> None:
    run = ended(tmp_path, PLANTED.format(name=name, error=error))
    assert (run.returncode, "Traceback" in run.stdout + run.stderr) == (code, False), run
    assert line in run.stdout


def test_where_it_was_is_shown_if_asked_for(tmp_path: Path) -> None:
    conftest = PLANTED.format(name="plugin.end_session", error="ValueError('planted')")
    run = ended(tmp_path, conftest, "-v")
    assert run.returncode == 3
    assert "in fails" in run.stdout


def test_faults_of_other_plug_ins_stay_theirs(tmp_path: Path) -> None:
    run = ended(tmp_path, FOREIGN)
    assert run.returncode == 1
    assert "internal error" not in run.stdout
