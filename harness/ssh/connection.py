"""Connections to other computers, held by the system's own ssh.

There is one for each purpose, whatever number of processes of this account use it. Each of them
holds the writing end of a pipe, whose other end is the stdin of ssh's guardian: when the last of
them has ended, however it ended, so does the connection. Whoever finds it gone begins it anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Hashable
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from harness.host.deadline import Deadline
from harness.host.guard import GuardedProcess, spawn_guarded
from harness.host.socket_folder import host_file
from harness.host.unix_socket import unix_connection
from harness.ssh.login import SshLogin
from harness.transport.faults import OutOfReachError

_POLL_S: Final = 0.02
_END_S: Final = 2.0
_NONE: Final = (FileNotFoundError, ConnectionRefusedError)
_FOR_A_COMMAND: Final = ("ControlMaster=no", "RemoteCommand=none", "ClearAllForwardings=yes")


_held: Final[dict[Hashable, SharedConnection]] = {}
_holding: Final = threading.Lock()


def shared_connection(
    login: SshLogin, key: Hashable, *, forward: str | None = None, name: str, least_s: float = 0.0
) -> SharedConnection:
    """This process's one hold on the connection of that key; see `SharedConnection`."""
    with _holding:
        if key not in _held:
            _held[key] = SharedConnection(login, key, forward, name, least_s)
        return _held[key]


class SharedConnection:
    """This process's hold on a connection.

    `key` is what it is for: who has an equal one shares it. `forward` is where, seen from there, a
    Unix socket of ours leads to, as `ssh -L` takes it; None: it is only for commands. `name` is
    what errors call it. At least `least_s` are given to beginning it, since others wait for it,
    too.
    """

    def __init__(
        self,
        login: SshLogin,
        key: Hashable,
        forward: str | None,
        name: str,
        least_s: float,
    ) -> None:
        self._login = login
        self._key = key
        self._forward = forward
        self._name = name
        self._least_s = least_s
        self._users: int | None = None
        self._ssh: GuardedProcess | None = None

    @property
    def _shared(self) -> Path:
        return host_file(self._key, "ssh")

    @property
    def _socket(self) -> str:
        return str(self._shared if self._forward is None else host_file(self._key, "socket"))

    def connect(self, timeout_s: float) -> socket.socket:
        """A connection to its socket; it is begun if it is not there.

        Raises OutOfReachError with what ssh said, TimeoutError.
        """
        if self._users is not None:
            with contextlib.suppress(*_NONE):
                return unix_connection(self._socket, timeout_s)
        deadline = Deadline(max(timeout_s, self._least_s))
        try:
            with FileLock(host_file(self._key, "lock"), timeout=deadline.seconds):
                return self._connected(deadline)
        except Timeout as error:
            raise TimeoutError("another process begins the connection") from error

    def require(self, timeout_s: float) -> None:
        """Begins it if it is not there; as `connect`."""
        self.connect(timeout_s).close()

    def command(self, script: str) -> list[str]:
        """What runs a script of the login shell there, by this connection."""
        return [*self._login.command(self._shared, *_FOR_A_COMMAND), script]

    def end(self) -> None:
        """Ends it for all who share it; the next to use it begins it anew."""
        argv = self._login.command(self._shared, words=("-O", "exit"))
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(argv, capture_output=True, timeout=_END_S, stdin=subprocess.DEVNULL)

    def _connected(self, deadline: Deadline) -> socket.socket:
        pipe = host_file(self._key, "users")
        if self._users is None:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe, 0o600)
            # for reading, too, so that it does not wait for a reader
            self._users = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(*_NONE):
            return unix_connection(self._socket, deadline.remaining() or 1e-3)
        with tempfile.TemporaryFile() as log:
            stdin = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # ssh shares nothing where one that was killed has left its socket
                self._shared.unlink(missing_ok=True)
                self._ssh = spawn_guarded(self._holder(), stdin=stdin, stderr=log)
            finally:
                os.close(stdin)
            while self._ssh.running and not deadline.expired:
                with contextlib.suppress(*_NONE):
                    return unix_connection(self._socket, deadline.remaining() or 1e-3)
                time.sleep(_POLL_S)
            ended = self._ssh.exit_code
            if ended is None:
                os.kill(self._ssh.pid, signal.SIGTERM)
                self._ssh.stop()
            log.seek(0)
            said = " ".join(log.read(4000).decode("utf-8", "replace").split())[-500:]
        if not said:
            none = f"no connection in {deadline.seconds:g} s"
            said = none if ended is None else f"ssh ended with {ended}"
        raise OutOfReachError(f"{self._name} is out of reach: {said}. {self._login.advice}")

    def _holder(self) -> list[str]:
        forward = () if self._forward is None else ("-L", f"{self._socket}:{self._forward}")
        return self._login.command(self._shared, "ControlMaster=yes", words=("-N", *forward))
