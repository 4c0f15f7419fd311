"""Runs `python -m ...` in a fork of a process that has imported the harness already.

Importing the harness takes longer than a short run. The process with the imports is a program of
its own (`main`); a fork leaves its loop, and ends as any Python does.
"""

import atexit
import contextlib
import gc
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_")
_NOT_IMPORTED = ("harness.labgrid.", "harness.cli.main")
_MAX_REQUEST = 1 << 20


def run_module(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    stderr: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """Return the result of `subprocess.run` for `python -m <words>` with nothing on stdin.

    A new Python is started where the environment has other variables that it reads as it begins.
    Raises TimeoutExpired.
    """
    if _read_at_start(environment) != _read_at_start(os.environ):
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=timeout_s,
        )
    request = {"words": list(words), "cwd": str(cwd), "environment": dict(environment)}
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, ours:
        with theirs:
            outputs = [file.fileno() for file in (out, out if stderr == subprocess.STDOUT else err)]
            files = [theirs.fileno(), *outputs]
            socket.send_fds(_server(), [json.dumps(request).encode()], files)
        ours.settimeout(timeout_s)
        try:
            code = int(ours.recv(16))
        except TimeoutError:  # the run ends when the connection is closed
            raise subprocess.TimeoutExpired(words, timeout_s) from None
        texts = [file.seek(0) or file.read() for file in (out, err)]
    written_apart = None if stderr == subprocess.STDOUT else texts[1]
    return subprocess.CompletedProcess(words, code, texts[0], written_apart)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in environment if name.startswith(_READ_AT_START)}


@cache
def _server() -> socket.socket:
    """Start the process that forks; it ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_REQUEST)
    with theirs:
        words = [sys.executable, "-m", __name__, str(theirs.fileno())]
        server = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
        )

    @atexit.register
    def end() -> None:
        ours.close()
        server.terminate()
        server.wait()

    return ours


def _wait_for_request(control: socket.socket) -> dict[str, Any]:
    """Fork twice for each request: the inner fork returns it, the outer one watches over that."""
    while True:
        data, files, _, _ = socket.recv_fds(control, _MAX_REQUEST, 3)
        if not data:
            sys.exit()
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control.close()
    connection, *outputs = files
    if (run := os.fork()) != 0:
        ended = os.pidfd_open(run)
        if ended not in select.select([ended, connection], [], [])[0]:  # nobody waits for it
            os.kill(run, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(run, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            os.write(connection, str(code).encode())
        os._exit(0)
    os.close(connection)
    for number, file in enumerate(outputs, start=1):
        os.dup2(file, number)
        os.close(file)
    return dict(json.loads(data))


def main() -> None:
    """Import the harness, then become what is asked for, each time in a fork."""
    # as pytest imports plug-ins: it rewrites their assertions
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main(["-VV", "-p", "no:hypothesispytest", "-p", "no:labgrid"])
    for module in pkgutil.walk_packages(import_module("harness").__path__, "harness."):
        if not module.name.startswith(_NOT_IMPORTED):
            import_module(module.name)
    import_module("onnx.helper")
    gc.freeze()  # what all forks share is neither looked through nor copied by each
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    request = _wait_for_request(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, on_interrupt)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = request["cwd"]
    sys.argv = request["words"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
