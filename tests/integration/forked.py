"""Runs `python -m pytest` or another module in a fork of a process that has imported the harness.

To begin Python and import it takes as long as a short run on a simulated device, and tests begin
hundreds. All else is as in a process of its own: environment, folder, streams, arguments, exit
code. What is about processes (signals, what is left of them) begins one.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path

from tests.integration.spares import become, open_streams, to_python

ROOT = Path(__file__).parents[2]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.integration.imported", __name__])
_PATH = sys.path[1:]  # all but the folder in which Python begins


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a program in that environment says to Python itself what this process was told."""
    return to_python(environment) == to_python(os.environ)


def _started(target: Callable[..., None], *given: object) -> ForkServerProcess:
    with contextlib.chdir(ROOT):  # where the server of forks finds what it imports
        ensure_running()
    process = _FORKS.Process(target=target, args=given)
    process.start()
    return process


def run_module(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    stderr: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` gives of `python -m <words>` with nothing on stdin.

    That is called where the environment has other words to Python itself than this process has.
    Raises TimeoutExpired.
    """
    if not can_fork(environment):
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        err = out if stderr == subprocess.STDOUT else Path(folder, "err")
        process = _started(_become, words, cwd, dict(environment), out, err)
        try:
            process.join(timeout_s)
            if process.exitcode is None:
                raise subprocess.TimeoutExpired(words, timeout_s)
        finally:
            process.kill()
            process.join()
        said = [path.read_text() for path in (out, err)]
    return subprocess.CompletedProcess(
        words, process.exitcode, said[0], None if out == err else said[1]
    )


class OnTerminal:
    """`python -m <words>` in a session of its own, on a terminal; as far as `Popen` is used."""

    def __init__(
        self, words: Sequence[str], cwd: Path, environment: Mapping[str, str], terminal: str
    ) -> None:
        self._process = _started(_become_on_terminal, words, cwd, dict(environment), terminal)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a fork", timeout or 0)
        return self._process.exitcode


def _become_on_terminal(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], terminal: str
) -> None:
    os.setsid()
    opened = os.open(terminal, os.O_RDWR)  # becomes the session's own
    for number in range(3):
        os.dup2(opened, number, inheritable=True)
    os.close(opened)
    open_streams()
    _run(words, cwd, environment)


def _become(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], out: Path, err: Path
) -> None:
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number, inheritable=True)
    _run(words, cwd, environment)


def _run(words: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [str(cwd), *filter(None, given), *_PATH]
    sys.argv = list(words)
    try:
        become(words)
    finally:
        atexit._run_exitfuncs()
