"""The program of guarded_process.py: run a command, and end it when the own stdin is closed.

Standard library only, so that it starts with `python -I -S` in a few milliseconds. The parent keeps
the other end of its stdin open. When the parent dies, in whatever way, the kernel closes the pipe,
and the command is ended. Its process group gets SIGTERM, and SIGKILL some seconds later; then every
descendant that had left the group is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType

REMOVE = "--remove"
"""Option before the command: remove the folder named next when the command has ended."""

LOCK = "--lock"
"""Option before the command: end the command while holding a lock on the file named next.

A process that opens the other end of stdin under that lock finds a command that stays, or none.
"""

GRACE = "--grace"
"""Option before the command: the seconds between SIGTERM and SIGKILL."""

GRACE_S = 2.0
"""The default of these seconds."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class _Ward:
    def __init__(self, argv: list[str]) -> None:
        libc = ctypes.CDLL(None)
        # orphans of the command become our children instead of init's, so that none escapes
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        guardian = os.getpid()

        def before_exec() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != guardian:
                os._exit(1)

        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=before_exec,
            close_fds=False,
        )
        self.exit_code: int | None = None

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child.pid:
                code = os.waitstatus_to_exitcode(status)
                self.exit_code = code if code >= 0 else 128 - code
                self._child.returncode = code

    def signal_group(self, number: int) -> bool:
        """Send the signal to the group; return whether it still had members."""
        try:
            os.killpg(self._child.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def children(self) -> list[int]:
        try:
            with open("/proc/thread-self/children") as listing:
                return [int(pid) for pid in listing.read().split()]
        except OSError:
            return []


def main(argv: list[str]) -> int:
    """Run `argv`; return its exit code (128 + signal number if a signal ended it)."""
    options: dict[str, str] = {}
    while argv[0] in (REMOVE, LOCK, GRACE):
        options[argv[0]], argv = argv[1], argv[2:]
    try:
        return _guard(argv, options.get(LOCK), float(options.get(GRACE, GRACE_S)))
    finally:
        if REMOVE in options:
            remove_folder(options[REMOVE])


def remove_folder(folder: str) -> None:
    """Remove a folder that has only files, as far as possible."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def _guard(argv: list[str], lock: str | None, grace_s: float) -> int:
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    asked_to_end: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        asked_to_end.append(number)

    # handled, not ignored: what is ignored would be ignored by the command, too
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGHUP, note)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        ward = _Ward(argv)
    except OSError as error:
        print(f"guard: cannot run {argv[0]}: {error}", file=sys.stderr)
        return 127
    _close_inherited({0, 1, 2, woken, wake})

    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while ward.exit_code is None and not asked_to_end:
        ready = {descriptor for descriptor, _ in poll.poll()}
        _drain(woken)
        ward.reap()
        if 0 in ready and _is_left() and (lock is None or _locked_and_left(lock)):
            break
    _end(ward, woken, grace_s)
    return 0 if ward.exit_code is None else ward.exit_code


def _is_left() -> bool:
    """Return whether no process has the other end of stdin open."""
    try:
        return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 4096)
    except BlockingIOError:  # a process opened it between the two
        return False


def _locked_and_left(lock: str) -> bool:
    # the lock is kept until the end; False: another process has the lock or stdin: try again later
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_left = _is_left()
    except BlockingIOError:
        time.sleep(0.02)
        is_left = False
    if not is_left:
        os.close(descriptor)
    return is_left


def _end(ward: _Ward, woken: int, grace_s: float) -> None:
    for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, GRACE_S)):
        ward.signal_group(number)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ward.reap()
            if not ward.signal_group(0):
                break
            _wait_for_news(woken)
    until = time.monotonic() + GRACE_S
    while (left_over := ward.children()) and time.monotonic() < until:
        for pid in left_over:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _wait_for_news(woken)
        ward.reap()


def _wait_for_news(woken: int) -> None:
    # 50 ms: a member of the group that is not our child ends without a SIGCHLD to us
    select.select([woken], [], [], 0.05)
    _drain(woken)


def _drain(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 4096):
            pass


def _close_inherited(keep_open: set[int]) -> None:
    # a listening socket passed through to the command must not stay open here as well
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep_open:
            with contextlib.suppress(OSError):
                os.close(int(name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
