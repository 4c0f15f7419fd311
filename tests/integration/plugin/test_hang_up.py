"""A closed terminal, or a lost ssh session, ends a run in order: its reports are written."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.integration.device_runs import WITHOUT_HYPOTHESIS

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
@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_terminal_leaves_reports_and_no_temporary_folder(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "test_mine.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "PYTEST_ADDOPTS": WITHOUT_HYPOTHESIS, "TMPDIR": str(temporary)}
    env["TERM"] = "dumb"  # little enough is written that nobody needs to read it
    terminal, inside = pty.openpty()

    def own_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    run = subprocess.Popen(
        [sys.executable, "-m", *COMMANDS[command]],
        cwd=tmp_path,
        env=env,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(inside)
    try:
        until = time.monotonic() + 240
        while not (tmp_path / "begun").exists() and run.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.1)
        os.close(terminal)
        interrupted = 2 if COMMANDS[command][0] == "pytest" else 130
        assert run.wait(120) == interrupted
    finally:
        run.kill()
        run.wait()
    (folder,) = {path.parent.resolve() for path in tmp_path.glob("r/**/latest/report.html")}
    info = json.loads((folder / "run.json").read_text())
    assert (info["problem"], info["exit_code"]) == ("interrupted", 2)
    assert info["finished"]
    leftovers = [path.name for path in temporary.iterdir() if path.name.startswith("qnn-harness")]
    assert leftovers == []
