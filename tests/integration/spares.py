"""Forks in store for the Pythons that a forked run starts: its daemons, and pytest-xdist's workers.

Each would import what the run has imported, which takes longer than most of what it then does. A
spare is forked before the run begins, so that nothing of that is in it, and is the run's own child.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from execnet.gateway_io import popen_bootstrapline
from xdist import workermanage

from harness.ground.host import guardian

WORKER, GUARDIAN = "worker", "guardian"
DAEMON = "harness.device.simulator.daemon"
RUNS = frozenset({"pytest", "harness.tools.cli.main"})
"""What a search begins under a guardian, in a process of its own each time."""

READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_")
"""What variables are called that Python reads as it begins, and no later."""

_MOST_BYTES = 1 << 20
_OF_AUTO = 3
_DEVICES = 2
_RUNS_OF_A_SEARCH = 12
SEARCHES = frozenset({"bisect", "minimize", "nightly"})


def to_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Words to Python itself: a fork has those of the process that it comes from."""
    kept = ("PYTHONPATH",)  # becomes sys.path
    return {
        name: environment[name]
        for name in environment
        if name.startswith(READ_AT_START) and name not in kept
    }


def wanted(words: Sequence[str]) -> int:
    """How many Pythons a command will begin: workers, a run after the other, a daemon or two."""
    if not SEARCHES.isdisjoint(words):
        return _RUNS_OF_A_SEARCH
    for before, word in itertools.pairwise(words):
        if before == "-n":
            return _DEVICES + (int(word) if word.isdecimal() else _OF_AUTO)
    return 1


def keep(count: int) -> None:
    """Forks so many, and lets `subprocess` take them for what begins a Python that they can be.

    All else begins as ever, also when none is left.
    """
    spares: list[tuple[int, socket.socket]] = []
    for _ in range(count):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            for _, other in [*spares, (0, ours)]:
                other.close()
            _wait(theirs)
        theirs.close()
        spares.append((pid, ours))
    begin, lock, owner = subprocess._fork_exec, threading.Lock(), os.getpid()  # type: ignore[attr-defined]
    had = to_python(os.environ)

    def fork_exec(*given: Any) -> int:
        asked = _asked(*given)
        if asked is None or os.getpid() != owner or to_python(asked["environment"]) != had:
            return int(begin(*given))
        with lock:
            if not spares:
                return int(begin(*given))
            pid, ours = spares.pop()
        try:
            with ours:
                socket.send_fds(ours, [json.dumps(asked).encode() + b"\n"], asked["from"])
        except OSError:  # a signal to all of us has ended it
            return int(begin(*given))
        return pid

    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]


def _asked(
    args: Sequence[Any],
    _executables: object,
    _close_fds: bool,
    pass_fds: Sequence[int],
    cwd: Any,
    env: Sequence[bytes] | None,
    p2cread: int,
    _p2cwrite: int,
    _c2pread: int,
    c2pwrite: int,
    _errread: int,
    errwrite: int,
    _errpipe_read: int,
    errpipe_write: int,
    _restore_signals: bool,
    start_new_session: bool,
    *owners: Any,
) -> dict[str, Any] | None:
    """What a spare needs to become that process; None where it cannot."""
    python, *words = (os.fsdecode(word) for word in args)
    *_, preexec_fn, _vfork = owners
    guarded = getattr(preexec_fn, "__module__", None) == guardian.__name__
    plain = set(owners[:-2]) <= {None, -1} and (preexec_fn is None or guarded)
    if python != sys.executable or not plain or set(pass_fds) - {errpipe_write}:
        return None
    match words:
        case ["-u", "-c", what] if what == popen_bootstrapline:
            program, words = WORKER, ["-c"]
        case ["-P", "-m", what, *_] if what == DAEMON:
            program, words = DAEMON, words[2:]
        case ["-I", "-S", what, begun, "-m", module, *_] if (what, begun) == (
            guardian.__file__,
            sys.executable,
        ) and module in RUNS:
            program, words = GUARDIAN, words[2:]
        case ["-m", module, *_] if guarded and module in RUNS:
            program, words = module, words[1:]
        case _:
            return None
    environment = os.environ if env is None else dict(os.fsdecode(one).split("=", 1) for one in env)
    return {
        "program": program,
        "words": words,
        "guarded": guarded,
        "environment": dict(environment),
        "cwd": os.fsdecode(cwd) if cwd is not None else os.getcwd(),
        "session": start_new_session,
        "ignored": [
            int(number)
            for number in signal.valid_signals()
            if signal.getsignal(number) is signal.SIG_IGN
        ],
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "from": [
            mine if mine != -1 else usual
            for mine, usual in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))
        ],
    }


def _wait(theirs: socket.socket) -> NoReturn:
    """As a spare: until somebody asks for a process, or nobody is left who could."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who presses Ctrl-C is to see no line of ours
    said, fds, _, _ = socket.recv_fds(theirs, _MOST_BYTES, 3)
    if not said:
        os._exit(0)
    while not said.endswith(b"\n"):
        said += theirs.recv(_MOST_BYTES)
    theirs.close()
    asked = json.loads(said)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    if asked["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in asked["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, asked["blocked"])
    if asked["guarded"]:
        ctypes.CDLL(None).prctl(guardian._PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    open_streams()
    end(lambda: _become(asked["program"], asked["words"]))


def open_streams() -> None:
    """As Python does at its beginning, of descriptors that are others now."""
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, how, buffering, closefd=False)  # noqa: SIM115
        for number, how, buffering in ((0, "r", -1), (1, "w", 1), (2, "w", 1))
    )


def _become(program: str, words: list[str]) -> None:
    sys.argv = words
    if program == WORKER:
        exec(popen_bootstrapline, {"__name__": "__main__", "__builtins__": __builtins__})
    elif program == GUARDIAN:
        keep(1)
        sys.exit(guardian.main(words[1:]))
    elif program == DAEMON:
        sys.modules.pop(program, None)  # runpy would warn of a module that it runs twice
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        become(words)


def become(words: Sequence[str]) -> None:
    """Runs `python -m <words>` here."""
    keep(wanted(words))
    sys.path[0] = os.getcwd()
    workermanage._sys_path = list(sys.path)  # pytest-xdist keeps what it was as Python began
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def end(program: Callable[[], None]) -> NoReturn:
    """Runs what a process is for, and ends the process as Python would."""
    code: object = 0
    try:
        program()
    except SystemExit as told:
        code = told.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code or 0)
