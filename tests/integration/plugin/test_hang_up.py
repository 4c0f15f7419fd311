"""A closed terminal, or a lost ssh session, ends a run in order: its reports are written."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.integration.device_runs import WITHOUT_HYPOTHESIS
from tests.integration.terminal import Terminal

SUITE = """
import pathlib
import time

import pytest

@pytest.mark.device
def test_fast(bench):
    bench.measure(noted=1)

@pytest.mark.device
def test_slow(bench):
    pathlib.Path("begun").touch()
    time.sleep(120)
"""


RUN = ("--device=sim-v73", "-p", "no:cacheprovider")
CLI = "harness.cli.main"
CASE = "--case=test_mine.py::test_slow"
COMMANDS = {
    "alone": ("pytest", "-m", "device", "--reports=r", *RUN),
    "worker": ("pytest", "-m", "device", "--reports=r", *RUN, "-n", "1"),
    "night": (CLI, "nightly", "--reports=r", "--", *RUN, "-n", "2"),
    "bisection": (CLI, "bisect", "--reports=r", "--axis=qnn", CASE, "--device=sim-v73"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_closed_terminal_leaves_reports_and_no_temporary_folder(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "test_mine.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "PYTEST_ADDOPTS": WITHOUT_HYPOTHESIS, "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", *COMMANDS[kind]]
    with Terminal(command, cwd=tmp_path, env=env | {"TERM": "dumb"}) as terminal:
        terminal.wait_for(lambda _: (tmp_path / "begun").exists())
        assert terminal.hang_up() == (2 if command[2] == "pytest" else 130)
    (folder,) = {path.parent.resolve() for path in tmp_path.glob("r/**/latest/report.html")}
    info = json.loads((folder / "run.json").read_text())
    assert (info["problem"], info["exit_code"]) == ("interrupted", 2)
    assert info["finished"]
    leftovers = [path.name for path in temporary.iterdir() if path.name.startswith("qnn-harness")]
    assert leftovers == []
