"""Tunnels to adb servers on other computers, held by the system's own ssh.

There is one for each server, whatever number of processes of this account use it. Each of them
holds the writing end of a pipe, whose other end is the stdin of ssh's guardian: when the last of
them has ended, however it ended, so does the tunnel. Whoever finds it gone begins it anew.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from harness.adb.address import SshAddress, TcpAddress, UnixAddress
from harness.adb.channel import Channel
from harness.adb.deadline import Deadline
from harness.adb.faults import OutOfReachError
from harness.adb.guard import GuardedProcess, spawn_guarded
from harness.adb.socket_folder import host_file

_START_S: Final = 15.0
_POLL_S: Final = 0.02
_SHARED: Final = "ssh"
_NONE: Final = (FileNotFoundError, ConnectionRefusedError)
_OPTIONS: Final = (
    *("BatchMode=yes", "ExitOnForwardFailure=yes", "ConnectTimeout=10"),
    *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
    *("StreamLocalBindUnlink=yes", "StreamLocalBindMask=0177"),
    *("ForwardAgent=no", "ForwardX11=no"),
    # shared by commands of ours alone: a connection that the user shares may end at any time
    "ControlPersist=no",
)


class _Tunnel:
    """This process's hold on a tunnel."""

    def __init__(self, address: SshAddress) -> None:
        self._address = address
        self._socket = UnixAddress(str(host_file(address, "socket")))
        self._users: int | None = None
        self._ssh: GuardedProcess | None = None

    def connect(self, timeout_s: float) -> socket.socket:
        if self._users is not None:
            with contextlib.suppress(*_NONE):
                return self._socket.connect(timeout_s)
        deadline = Deadline(max(timeout_s, _START_S))
        try:
            with FileLock(host_file(self._address, "lock"), timeout=deadline.seconds):
                return self._connected(deadline)
        except Timeout as error:
            raise TimeoutError("another process begins the tunnel") from error

    def _connected(self, deadline: Deadline) -> socket.socket:
        pipe = host_file(self._address, "users")
        if self._users is None:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe, 0o600)
            # for reading, too, so that it does not wait for a reader
            self._users = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(*_NONE):
            return self._socket.connect(deadline.remaining())
        with tempfile.TemporaryFile() as log:
            stdin = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # ssh shares nothing where one that was killed has left its socket
                shared = host_file(self._address, _SHARED)
                shared.unlink(missing_ok=True)
                argv = tunnel_command(self._address, Path(self._socket.path), shared)
                self._ssh = spawn_guarded(argv, stdin=stdin, stderr=log)
            finally:
                os.close(stdin)
            while self._ssh.running and not deadline.expired:
                with contextlib.suppress(*_NONE):
                    return self._socket.connect(deadline.remaining())
                time.sleep(_POLL_S)
            ended = self._ssh.exit_code
            if ended is None:
                os.kill(self._ssh.pid, signal.SIGTERM)
                self._ssh.stop()
            log.seek(0)
            said = " ".join(log.read(4000).decode("utf-8", "replace").split())[-500:]
        if not said:
            said = f"no tunnel in {_START_S:g} s" if ended is None else f"ssh ended with {ended}"
        raise OutOfReachError(f"{self._address} is out of reach: {said}. {_advice(self._address)}")


_tunnels: Final[dict[SshAddress, _Tunnel]] = {}
_lock: Final = threading.Lock()


def connect_through(address: SshAddress, timeout_s: float) -> socket.socket:
    """A connection to a server behind ssh.

    A tunnel that has to be begun may take 15 s, whatever `timeout_s` says: others wait for it, too.
    Raises OutOfReachError with what ssh said, TimeoutError.
    """
    with _lock:
        tunnel = _tunnels.setdefault(address, _Tunnel(address))
    return tunnel.connect(timeout_s)


@contextlib.contextmanager
def running_there(address: SshAddress, command: str, deadline: Deadline) -> Iterator[Channel]:
    """What goes to and comes from a command for the shell of the computer that ssh leads to.

    It goes by the connection of the tunnel if there is one. Its stdin ends with the block, and with
    this process however that ends; whether it ends then, too, is its own affair. Raises OSError
    where there is no ssh.
    """
    options = ("ControlMaster=no", "RemoteCommand=none", "ClearAllForwardings=yes")
    argv = [*_ssh(address, host_file(address, _SHARED), *options), command]
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            end = theirs.fileno()
            ssh = subprocess.Popen(argv, stdin=end, stdout=end, stderr=end, start_new_session=True)
        try:
            yield Channel(ours, deadline)
        finally:
            ssh.kill()
            ssh.wait()


def tunnel_command(address: SshAddress, path: Path, shared: Path) -> list[str]:
    """What holds a tunnel from the Unix socket `path` to the server, and lets commands use the
    connection by the socket `shared` (pure)."""
    forward = f"{path}:{TcpAddress(address.behind, address.port)}"
    *ssh, end, login = _ssh(address, shared, "ControlMaster=yes")
    return [*ssh, "-N", "-L", forward, end, login]


def _ssh(address: SshAddress, shared: Path, *more: str) -> list[str]:
    options = [word for option in (*_OPTIONS, *more) for word in ("-o", option)]
    port = [] if address.ssh_port is None else ["-p", str(address.ssh_port)]
    escaped = str(shared).replace("%", "%%")
    return ["ssh", "-T", *options, "-S", escaped, *port, "--", address.login]


def _advice(address: SshAddress) -> str:
    port = "" if address.ssh_port is None else f"-p {address.ssh_port} "
    return f"`ssh {port}{address.login} true` must work without asking anything"
