"""Connections to other computers, kept by the system's own ssh.

There is one for each purpose, however many processes of this account use it. Each process holds the
writing end of a pipe, whose other end is the stdin of ssh's guardian. When the last process has
ended, in whatever way, so does the connection. A process that finds it gone reopens it, after
waiting for one that is just ending, by the lock that its guardian holds.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from filelock import FileLock, Timeout

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError
from harness.core.guarded_process import GuardedProcess, spawn_guarded
from harness.core.socket_folder import host_file, unix_connection
from harness.transport.transport_errors import OutOfReachError

_OPTIONS: Final = (
    *("BatchMode=yes", "ExitOnForwardFailure=yes", "ConnectTimeout=10"),
    *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
    *("StreamLocalBindUnlink=yes", "StreamLocalBindMask=0177"),
    *("ForwardAgent=no", "ForwardX11=no"),
    # shared by the harness's commands only: a connection of the user's may end at any time
    "ControlPersist=no",
)


HOST: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
"""A host name or an IPv4 address. It never begins like an option of a program."""
_LOGIN: Final = rf"(?:[A-Za-z_][A-Za-z0-9._-]{{0,63}}@)?(?:{HOST}|\[[0-9A-Fa-f:.%]{{2,45}}\])"
SSH_COMPUTER: Final = re.compile(rf"({_LOGIN})(?::(\d{{1,5}}))?", re.ASCII)
"""[user@]host[:port]"""


@dataclass(frozen=True)
class SshLogin:
    """A computer that ssh leads to: `[user@]host`, as ssh's own configuration knows it."""

    login: str
    port: int | None = None

    @property
    def host(self) -> str:
        return self.login.rpartition("@")[2]

    def __str__(self) -> str:
        user, separator, host = self.login.rpartition("@")
        host = f"[{host}]" if ":" in host else host
        return f"{user}{separator}{host}" + ("" if self.port is None else f":{self.port}")

    @property
    def advice(self) -> str:
        port = "" if self.port is None else f"-p {self.port} "
        return f"`ssh {port}{self.login} true` must work without a prompt"

    def command(self, shared: Path, *more: str, words: tuple[str, ...] = ()) -> list[str]:
        """Return the ssh command over the connection with the socket `shared` (pure)."""
        options = [word for option in (*_OPTIONS, *more) for word in ("-o", option)]
        port = [] if self.port is None else ["-p", str(self.port)]
        escaped = str(shared).replace("%", "%%")
        return ["ssh", "-T", *options, "-S", escaped, *port, *words, "--", self.login]


def login_at(computer: str) -> SshLogin | None:
    """Parse `[user@]host[:port]`; None if it is written in another way."""
    match = SSH_COMPUTER.fullmatch(computer)
    if match is None or not is_port(match[2]):
        return None
    return SshLogin(re.sub(r"[\[\]]", "", match[1]), None if match[2] is None else int(match[2]))


def is_port(port: str | None) -> bool:
    """Return whether digits are a port number; None, for the default port, is."""
    return port is None or 0 < int(port) < 65536


_POLL_S: Final = 0.02
_START_S: Final = 15.0
_NONE: Final = (FileNotFoundError, ConnectionRefusedError)
_FOR_A_COMMAND: Final = (
    *("ControlMaster=no", "RemoteCommand=none", "ClearAllForwardings=yes"),
    "ProxyCommand=false",
)


_connections: Final[dict[Hashable, SharedConnection]] = {}


def shared_connection(
    login: SshLogin, key: Hashable, *, forward: str | None = None, name: str, least_s: float = 0.0
) -> SharedConnection:
    """Return this process's only `SharedConnection` for that key."""
    return _connections.setdefault(key, SharedConnection(login, key, forward, name, least_s))


@dataclass(eq=False)
class SharedConnection:
    """This process's share of a connection.

    `key` says what it is for; processes with equal keys share it. `forward` is the remote end of a
    local Unix socket, as `ssh -L` takes it; None for a connection that is only for commands. `name`
    is the connection's name in errors. Opening it may take at least `least_s`, since others wait
    for it, too.
    """

    login: SshLogin
    key: Hashable
    forward: str | None
    name: str
    least_s: float
    _users: int | None = field(default=None, init=False)
    _ssh: GuardedProcess | None = field(default=None, init=False)
    _start_deadline: Deadline = field(default_factory=lambda: Deadline(0), init=False)
    _log: IO[bytes] | None = field(default=None, init=False)

    @property
    def _shared(self) -> Path:
        return host_file(self.key, "ssh")

    @property
    def _lock(self) -> Path:
        return host_file(self.key, "lock")

    @property
    def _socket(self) -> str:
        return str(self._shared if self.forward is None else host_file(self.key, "socket"))

    def connect(self, timeout_s: float) -> socket.socket:
        """Connect to its socket, and open the shared connection first if there is none.

        Raises OutOfReachError with ssh's message, TimeoutError.
        """
        if self._users is not None:
            with contextlib.suppress(*_NONE):
                return unix_connection(self._socket, timeout_s)
        deadline = Deadline(max(timeout_s, self.least_s))
        try:
            with FileLock(self._lock, timeout=deadline.seconds):
                return self._connected(deadline)
        except Timeout as error:
            raise TimeoutError("another process is opening the connection") from error

    def require(self, timeout_s: float) -> None:
        """Open it if there is none; raises as `connect`."""
        self.connect(timeout_s).close()

    def command(self, script: str) -> list[str]:
        """Return the command that runs a script in the remote login shell over this connection.

        ssh must not open another connection by itself.
        """
        return [*self.login.command(self._shared, *_FOR_A_COMMAND), script]

    def end(self, *, timeout_s: float) -> None:
        """End it for all processes that share it; the next user reopens it."""
        argv = self.login.command(self._shared, words=("-O", "exit"))
        nothing = subprocess.DEVNULL
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(argv, timeout=timeout_s, stdin=nothing, stdout=nothing, stderr=nothing)
        # the next user must not find one that hangs and did not react
        self._shared.unlink(missing_ok=True)
        self._stop()

    def _stop(self) -> None:
        if self._ssh is not None and self._ssh.running:
            os.kill(self._ssh.pid, signal.SIGTERM)
            self._ssh.stop()

    def _connected(self, deadline: Deadline) -> socket.socket:
        pipe = host_file(self.key, "users")
        if self._users is None:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe, 0o600)
            # for reading, too, so that it does not wait for a reader
            self._users = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(*_NONE):
            return unix_connection(self._socket, deadline.remaining() or 1e-3)
        if shutil.which("ssh") is None:
            raise ConfigError("this computer has no ssh: apt install openssh-client")
        # one that is starting is awaited until its own deadline
        if self._ssh is None or not self._ssh.running or self._start_deadline.expired:
            self._begin(pipe)
        assert self._ssh is not None
        while self._ssh.running and not deadline.expired:
            with contextlib.suppress(*_NONE):
                return unix_connection(self._socket, deadline.remaining() or 1e-3)
            time.sleep(_POLL_S)
        if self._ssh.running and self._start_deadline.remaining() > 1:
            raise TimeoutError(f"no connection within {deadline.seconds:.2g} s")
        ended = self._ssh.exit_code
        self._stop()
        assert self._log is not None
        self._log.seek(0)
        output = " ".join(self._log.read(4000).decode("utf-8", "replace").split())[-500:]
        if not output:
            none = f"no connection in {_START_S:g} s"
            output = none if ended is None else f"ssh ended with {ended}"
        raise OutOfReachError(
            f"{self.name} is out of reach: {output.rstrip('.')}. {self.login.advice}"
        )

    def _begin(self, pipe: Path) -> None:
        self._stop()
        if self._log is not None:
            self._log.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  it is kept as long as ssh runs
        stdin = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # ssh shares nothing if one that was killed has left its socket
            self._shared.unlink(missing_ok=True)
            self._ssh = spawn_guarded(
                self._holder(), stdin=stdin, stderr=self._log, lock=self._lock
            )
        finally:
            os.close(stdin)
        self._start_deadline = Deadline(_START_S)

    def _holder(self) -> list[str]:
        if self.forward is None:
            # without the forwards and commands of the user's own configuration
            only = ("ControlMaster=yes", "RemoteCommand=none", "ClearAllForwardings=yes")
            return self.login.command(self._shared, *only, words=("-N",))
        forward = ("-N", "-L", f"{self._socket}:{self.forward}")
        return self.login.command(self._shared, "ControlMaster=yes", words=forward)
