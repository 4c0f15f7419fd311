"""A board with sshd and no adbd: its shell and its files, by one shared connection.

The connection is that of `ssh`, which vouches for each byte: what comes is what was sent, or the
connection has ended. Files travel as a tar on stdin, which every board can take apart.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shlex
import socket
import stat
import subprocess
import tarfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.errors import (
    ConfigError,
    DeviceError,
    DeviceLost,
    DeviceRefused,
    InfraError,
    InternalError,
)
from harness.files.whole_file import open_regular
from harness.host.deadline import Deadline
from harness.ssh.connection import shared_connection
from harness.ssh.login import SshLogin
from harness.transport.bridge import Bridge
from harness.transport.device import SHORT_S, Transport
from harness.transport.faults import device_faults
from harness.transport.files import (
    PSEUDO_FOLDERS,
    IncomingFile,
    Progress,
    PushItem,
    RemoteStat,
    local_faults,
    path_bytes,
)
from harness.transport.shell_protocol import LastMark, told_script

_READ_BYTES: Final = 256 << 10
_BLOCK: Final = 512
_RETRY_S: Final = 0.5
_HOPELESS: Final = (
    *("Permission denied", "Too many authentication failures", "Host key verification failed"),
    *("Could not resolve", "Bad port"),
)
"""What ssh says where time changes nothing."""
_MAX_SCRIPT_BYTES: Final = 100_000
"""Linux takes 128 KiB as one word of a command line."""
_ENOENT: Final = 2


class SshBoard(Transport):
    """A board by its address; `serial` is that address.

    Calls share one connection, begun by the first of them and for as long as this process lives.
    """

    is_checked = True

    def __init__(self, login: SshLogin) -> None:
        super().__init__(str(login))
        self.login = login
        self._connection = shared_connection(login, ("board", login), name=f"board {login}")

    def __repr__(self) -> str:
        return f"SshBoard({self.login})"

    @property
    def features(self) -> frozenset[str]:
        """As if adbd spoke shell_v2."""
        return frozenset({"shell_v2"})

    @property
    def shell_v2(self) -> bool:
        """Whether its shells tell their outputs apart: they do."""
        return True

    def _link(self, deadline: Deadline) -> SshBoard:
        return self

    def open(
        self,
        script: str,
        deadline: Deadline,
        command: str,
        *,
        token: str | None = None,
        stdin_file: str | None = None,
    ) -> socket.socket:
        """As `Link.open`. Raises ConfigError where this computer has no ssh."""
        mark = secrets.token_hex(8)
        told = f"exec sh -c {shlex.quote(told_script(script, token, mark))}"
        encoded = told.encode("utf-8", "surrogateescape")
        if len(encoded) > _MAX_SCRIPT_BYTES or b"\0" in encoded:
            raise InternalError(
                f"a script of {len(encoded)} bytes does not fit into a command line, or has a NUL; "
                "pass its data by stdin"
            )
        with device_faults(self.serial, command):
            self._connection.require(deadline.remaining() or 1e-3)
        try:
            ssh = subprocess.Popen(
                self._connection.command(told),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"ssh cannot be run: {error}") from error
        return Bridge(ssh, LastMark(mark)).socket

    def connect(self, *, timeout_s: float) -> None:
        """As `Transport.connect`: we are let in. A board that boots is tried until the deadline."""
        deadline = Deadline(timeout_s)
        while True:
            try:
                with device_faults(self.serial, "connect"):
                    return self._connection.require(deadline.remaining() or 1e-3)
            except DeviceLost as error:
                hopeless = any(words in error.problem for words in _HOPELESS)
                if hopeless or deadline.remaining() < _RETRY_S:
                    raise
            time.sleep(_RETRY_S)

    def reconnect(self, *, timeout_s: float) -> None:
        """As `Transport.reconnect`, for all who share the connection."""
        self._connection.end()
        self.connect(timeout_s=timeout_s)

    def is_there(self, *, timeout_s: float) -> bool:
        """Whether it answers."""
        with contextlib.suppress(InfraError):
            return self.shell("true", timeout_s=timeout_s).ok
        return False

    def disconnect(self) -> None:
        """Ends the shared connection."""
        self._connection.end()

    def reboot(self, *, timeout_s: float) -> None:
        """As `Transport.reboot`, by the command of that name, which takes root or sudo."""
        with contextlib.suppress(DeviceLost):
            done = self.shell("reboot||sudo -n reboot", timeout_s=timeout_s, doing="reboot")
            if not done.ok:
                raise self._refused("it does not reboot", "reboot", done.stderr)

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """As `Transport.push`."""
        if not files:
            return
        command = f"push {files[0].remote}" + (f" and {len(files) - 1} more" * (len(files) > 1))
        done = self.shell(
            "tar -x -p -o -f - -C /",
            stdin=_tar(files, progress),
            timeout_s=timeout_s,
            doing=command,
        )
        if not done.ok:
            raise self._refused("it does not take them", command, done.stderr)

    def stat(
        self, remote: str, *, timeout_s: float = SHORT_S, follow: bool = True
    ) -> RemoteStat | None:
        """As `Transport.stat`."""
        path_bytes(remote)
        command, path = f"stat {remote}", shlex.quote(remote)
        there = f"[ -e {path} ]" if follow else f"[ -e {path} ]||[ -h {path} ]"
        option = "-L " if follow else ""
        done = self.shell(
            f"{there}||{{ echo none;exit; }};stat {option}-c '%f %s %Y' -- {path}",
            timeout_s=timeout_s,
            doing=command,
        )
        said = done.stdout.decode("utf-8", "replace").split()
        if done.ok and said == ["none"]:
            return None
        try:
            mode, size, mtime_s = int(said[0], 16), int(said[1]), int(said[2])
        except (ValueError, IndexError):
            raise self._refused("it does not say", command, done.stderr) from None
        return RemoteStat(mode, size, mtime_s)

    def pull(self, remote: str, local: Path, *, timeout_s: float, max_bytes: int) -> None:
        """As `Transport.pull`."""
        command, deadline = f"pull {remote}", Deadline(timeout_s)
        found = self.stat(remote, timeout_s=timeout_s)
        if found is None:
            raise self._refused("No such file or directory", command)
        if not stat.S_ISREG(found.mode):
            raise self._refused("not a regular file", command)
        sized = not remote.startswith(PSEUDO_FOLDERS)
        if sized and found.size > max_bytes:
            raise self._error(f"{found.size} bytes, more than the {max_bytes} allowed", command)
        with IncomingFile(local) as file:
            done = self.shell(
                f"cat -- {shlex.quote(remote)}",
                timeout_s=deadline.remaining(),
                on_stdout=file.write,
                max_output_bytes=max_bytes + 1,
                doing=command,
                collect=False,
            )
            if done.truncated or file.size > max_bytes:
                raise self._error(f"more than the {max_bytes} bytes allowed", command)
            if not done.ok:
                raise self._refused("it does not give it", command, done.stderr)
            if sized and file.size != found.size:
                raise self._error(f"{file.size} bytes came, not {found.size}", command)
            file.keep(found)

    def _error(self, problem: str, command: str) -> DeviceError:
        return DeviceError(problem, serial=self.serial, command=command)

    def _refused(self, problem: str, command: str, said: bytes = b"") -> DeviceRefused:
        words = " ".join(said[-500:].decode("utf-8", "replace").split())
        text = f"{problem}: {words}" if words else problem
        return DeviceRefused(text, serial=self.serial, command=command)


def _tar(files: Iterable[PushItem], progress: Progress | None) -> Iterator[bytes]:
    """The files as one tar, piece by piece; of a piece is told when the next one is wanted.

    Raises InfraError where a file cannot be read.
    """
    sent = 0
    for file in files:
        path_bytes(file.remote)
        info = tarfile.TarInfo(file.remote.lstrip("/"))
        info.mode = file.mode & 0o7777
        with _opened(file, info) as blocks:
            yield info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
            for block in blocks:
                yield block
                sent += len(block)
                if progress is not None:
                    progress(sent)
        yield bytes(-info.size % _BLOCK)
    yield bytes(2 * _BLOCK)


@contextlib.contextmanager
def _opened(file: PushItem, info: tarfile.TarInfo) -> Iterator[Iterator[bytes]]:
    """The content of a file; its size and time go into `info`."""
    if isinstance(file.source, bytes):
        info.size, info.mtime = len(file.source), int(time.time())
        yield iter([file.source])
        return
    with local_faults(file.source):
        source = open_regular(file.source, file.size)
    with source:
        found = os.fstat(source.fileno())
        info.size, info.mtime = found.st_size, int(found.st_mtime)
        yield _blocks(source, file.source, info.size)


def _blocks(source: io.FileIO, path: Path, size: int) -> Iterator[bytes]:
    while size:
        with local_faults(path):
            block = source.read(min(_READ_BYTES, size))
        if not block:
            raise InfraError(f"{path} on this host became shorter meanwhile")
        size -= len(block)
        yield block
