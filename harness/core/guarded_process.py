"""Child processes that cannot outlive us, not even when we are ended with SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from harness.core import guardian
from harness.core.deadline import Deadline
from harness.core.errors import InfraError

RUN_GRACE_S = 30.0
"""Seconds that a run may take to write its reports after a signal."""

_STOP_S = 2 * guardian.GRACE_S + 1.0


class GuardedProcess:
    """A running command under its guardian. `pid` is the guardian's."""

    def __init__(self, popen: subprocess.Popen[bytes], grace_s: float) -> None:
        self._popen, self._grace_s = popen, grace_s
        self.pid = popen.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def stdout(self) -> IO[bytes] | None:
        return self._popen.stdout

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def command_pid(self) -> int | None:
        """The pid of the command itself, None if it has ended or not begun."""
        with contextlib.suppress(OSError, ValueError):
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            return int(children[0]) if children else None
        return None

    def wait(self, deadline: Deadline) -> int | None:
        """Wait for the end; the exit code, or None if the deadline passed first."""
        try:
            return self._popen.wait(deadline.remaining())
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> int | None:
        """End the command and everything it started; safe to call twice.

        Takes at most about 5 s and the command's grace, and that only if it ignores SIGTERM and
        SIGKILL has to be waited for.
        """
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()
        code = self.wait(Deadline(self._grace_s + _STOP_S))
        if code is None:
            self._popen.kill()
            code = self.wait(Deadline(1.0))
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        return code


def spawn_guarded(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    stdout: int | IO[bytes] | None = subprocess.DEVNULL,
    stderr: int | IO[bytes] | None = subprocess.DEVNULL,
    stdin: int = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
    remove: Path | None = None,
    lock: Path | None = None,
    grace_s: float = guardian.GRACE_S,
) -> GuardedProcess:
    """Start `argv` in a session of its own, without stdin; it is ended when this process ends.

    `env` is the whole environment of the command (None: that of this process); `stdout` and
    `stderr` are as for subprocess. The command is ended when `stdin` is closed, by default a pipe
    of this process. `pass_fds` keep their numbers. `remove` is a folder of files that is removed
    afterwards. The command is ended under `lock`, unless a process that had the lock has opened
    `stdin` again. From SIGTERM to SIGKILL it has `grace_s`. Raises InfraError if nothing can be
    started at all; a command that does not exist ends with exit code 127.
    """
    command = [os.fspath(part) for part in argv]
    options = [guardian.GRACE, str(grace_s)]
    options += [] if remove is None else [guardian.REMOVE, os.fspath(remove)]
    options += [] if lock is None else [guardian.LOCK, os.fspath(lock)]
    guarded = [sys.executable, "-I", "-S", guardian.__file__, *options, *command]
    try:
        popen = subprocess.Popen(
            guarded,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            # Ctrl-C at the terminal is for us: we end our children in our own order
            start_new_session=True,
        )
    except OSError as error:
        raise InfraError(f"cannot start {command[0]}: {error}") from error
    return GuardedProcess(popen, grace_s)


_TAIL_BYTES = 2000


def start_daemon(
    command: Sequence[str],
    *,
    title: str,
    within_s: float,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command in a session of its own, ended only after `within_s`.

    Raises InfraError that calls it `title` if it does not start, does not end, or ends with a
    status other than 0, with the last line that it printed.
    """
    with tempfile.TemporaryFile() as output:
        try:
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment,
            )
        except OSError as error:
            raise InfraError(f"{title} does not start: {error}") from error
        try:
            code = started.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
            raise InfraError(f"{title} did not finish within {within_s:g} s") from None
        output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL_BYTES))
        why = output.read().decode("utf-8", "replace").strip()
    if code:
        raise InfraError(f"{title} ended with exit code {code}: {why.rpartition(chr(10))[2]}")
