"""Connections to other computers, held by the system's own ssh.

There is one for each purpose, whatever number of processes of this account use it. Each of them
holds the writing end of a pipe, whose other end is the stdin of ssh's guardian. When the last of
them has ended, however it ended, so does the connection. Whoever finds it gone begins it anew; one
that is just ending is waited for, under the lock that its guardian holds for that.
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
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from filelock import FileLock, Timeout

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError
from harness.core.guard import GuardedProcess, spawn_guarded
from harness.core.socket_folder import host_file, unix_connection
from harness.transport.faults import OutOfReachError

_OPTIONS: Final = (
    *("BatchMode=yes", "ExitOnForwardFailure=yes", "ConnectTimeout=10"),
    *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
    *("StreamLocalBindUnlink=yes", "StreamLocalBindMask=0177"),
    *("ForwardAgent=no", "ForwardX11=no"),
    # shared by commands of ours alone: a connection that the user shares may end at any time
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
        user, at, host = self.login.rpartition("@")
        host = f"[{host}]" if ":" in host else host
        return f"{user}{at}{host}" + ("" if self.port is None else f":{self.port}")

    @property
    def advice(self) -> str:
        port = "" if self.port is None else f"-p {self.port} "
        return f"`ssh {port}{self.login} true` must work without asking anything"

    def command(self, shared: Path, *more: str, words: tuple[str, ...] = ()) -> list[str]:
        """ssh to it, by the connection whose socket is `shared`, with more options (pure)."""
        options = [word for option in (*_OPTIONS, *more) for word in ("-o", option)]
        port = [] if self.port is None else ["-p", str(self.port)]
        escaped = str(shared).replace("%", "%%")
        return ["ssh", "-T", *options, "-S", escaped, *port, *words, "--", self.login]


def login_at(computer: str) -> SshLogin | None:
    """The computer at `[user@]host[:port]`, None if it is written in another way."""
    found = SSH_COMPUTER.fullmatch(computer)
    if found is None or not is_port(found[2]):
        return None
    return SshLogin(re.sub(r"[\[\]]", "", found[1]), None if found[2] is None else int(found[2]))


def is_port(port: str | None) -> bool:
    """Whether digits are the number of a port; None, for one that is not named, is."""
    return port is None or 0 < int(port) < 65536


_POLL_S: Final = 0.02
_START_S: Final = 15.0
_NONE: Final = (FileNotFoundError, ConnectionRefusedError)
_FOR_A_COMMAND: Final = (
    *("ControlMaster=no", "RemoteCommand=none", "ClearAllForwardings=yes"),
    "ProxyCommand=false",
)


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

    `key` says what it is for; whoever has an equal key shares it. `forward` is where, seen from
    there, a Unix socket of ours leads to, as `ssh -L` takes it; None: it is only for commands.
    `name` is what errors call it. At least `least_s` are given to beginning it, since others wait
    for it, too.
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
        self._due = Deadline(0)
        self._log: IO[bytes] | None = None

    @property
    def _shared(self) -> Path:
        return host_file(self._key, "ssh")

    @property
    def _lock(self) -> Path:
        return host_file(self._key, "lock")

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
            with FileLock(self._lock, timeout=deadline.seconds):
                return self._connected(deadline)
        except Timeout as error:
            raise TimeoutError("another process begins the connection") from error

    def require(self, timeout_s: float) -> None:
        """Begins it if it is not there; as `connect`."""
        self.connect(timeout_s).close()

    def command(self, script: str) -> list[str]:
        """What runs a script of the login shell there, by this connection.

        ssh must not begin another connection by itself.
        """
        return [*self._login.command(self._shared, *_FOR_A_COMMAND), script]

    def end(self, *, timeout_s: float) -> None:
        """Ends it for all who share it; the next to use it begins it anew."""
        argv = self._login.command(self._shared, words=("-O", "exit"))
        nothing = subprocess.DEVNULL
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(argv, timeout=timeout_s, stdin=nothing, stdout=nothing, stderr=nothing)
        # where it stands still and hears nothing, whoever comes next must not find it
        self._shared.unlink(missing_ok=True)
        self._stop()

    def _stop(self) -> None:
        if self._ssh is not None and self._ssh.running:
            os.kill(self._ssh.pid, signal.SIGTERM)
            self._ssh.stop()

    def _connected(self, deadline: Deadline) -> socket.socket:
        pipe = host_file(self._key, "users")
        if self._users is None:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe, 0o600)
            # for reading, too, so that it does not wait for a reader
            self._users = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(*_NONE):
            return unix_connection(self._socket, deadline.remaining() or 1e-3)
        if shutil.which("ssh") is None:
            raise ConfigError("this computer has no ssh: apt install openssh-client")
        # one that was begun and is not there yet is waited for, until it has had its time
        if self._ssh is None or not self._ssh.running or self._due.expired:
            self._begin(pipe)
        assert self._ssh is not None
        while self._ssh.running and not deadline.expired:
            with contextlib.suppress(*_NONE):
                return unix_connection(self._socket, deadline.remaining() or 1e-3)
            time.sleep(_POLL_S)
        if self._ssh.running and self._due.remaining() > 1:
            raise TimeoutError(f"no connection within {deadline.seconds:.2g} s")
        ended = self._ssh.exit_code
        self._stop()
        assert self._log is not None
        self._log.seek(0)
        said = " ".join(self._log.read(4000).decode("utf-8", "replace").split())[-500:]
        if not said:
            none = f"no connection in {_START_S:g} s"
            said = none if ended is None else f"ssh ended with {ended}"
        raise OutOfReachError(
            f"{self._name} is out of reach: {said.rstrip('.')}. {self._login.advice}"
        )

    def _begin(self, pipe: Path) -> None:
        self._stop()
        if self._log is not None:
            self._log.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  it is kept as long as ssh runs
        stdin = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # ssh shares nothing where one that was killed has left its socket
            self._shared.unlink(missing_ok=True)
            self._ssh = spawn_guarded(
                self._holder(), stdin=stdin, stderr=self._log, lock=self._lock
            )
        finally:
            os.close(stdin)
        self._due = Deadline(_START_S)

    def _holder(self) -> list[str]:
        if self._forward is None:
            # what else the user has ssh do there is not for us
            only = ("ControlMaster=yes", "RemoteCommand=none", "ClearAllForwardings=yes")
            return self._login.command(self._shared, *only, words=("-N",))
        forward = ("-N", "-L", f"{self._socket}:{self._forward}")
        return self._login.command(self._shared, "ControlMaster=yes", words=forward)
