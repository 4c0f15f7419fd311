"""A board with sshd and no adbd: its shell and its files, over one shared connection.

The connection is that of `ssh`, which checks each byte: what arrives is what was sent, or the
connection has ended. Files are sent as a tar on stdin, which every board can unpack.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, DeviceLost, DeviceTimeout, InfraError, InternalError
from harness.core.outgoing_text import counted
from harness.transport.channel import Channel
from harness.transport.device import SHORT_S, PacketTransport
from harness.transport.faults import device_faults
from harness.transport.files import (
    MAX_PATH_BYTES,
    Progress,
    PushItem,
    RemoteStat,
    open_content,
    path_bytes,
)
from harness.transport.shell import ShellCall
from harness.transport.shell_protocol import TOKEN_VARIABLE, MarkedStreams, marked_script
from harness.transport.ssh_connection import SshLogin, shared_connection
from harness.transport.this_computer import Bridge

_BLOCK: Final = 512
_RETRY_S: Final = 0.5
_ANY_BYTES: Final = 1 << 62  # `receive_file` has the limit
_END_S: Final = 2.0
_REBOOT: Final = (
    f"(unset {TOKEN_VARIABLE};command -v setsid >/dev/null&&s=setsid;"
    "exec $s sh -c 'reboot||sudo -n reboot')& wait $!"
)
_STAT: Final = re.compile(rb"([0-9a-f]{1,8}) ([0-9]{1,19}) ([0-9]{1,11})(?:\.[0-9]*)?\n")
_TAR_LINE_BYTES: Final = 5 * MAX_PATH_BYTES
_HOPELESS: Final = (
    *("Permission denied", "Too many authentication failures", "Host key verification failed"),
    *("Could not resolve", "Bad port"),
)
"""Messages of ssh after which it is no use to try again at once."""
_MAX_SCRIPT_BYTES: Final = 100_000
"""Linux accepts at most 128 KiB as one word of a command line."""


class SshBoard(PacketTransport):
    """A board by its address; `serial` is that address.

    Calls share one connection, which the first of them opens and which lasts as long as this
    process.
    """

    def __init__(self, login: SshLogin) -> None:
        super().__init__(str(login))
        self.login = login
        self._connection = shared_connection(login, ("board", login), name="it")

    def __repr__(self) -> str:
        return f"SshBoard({self.login})"

    def open(self, call: ShellCall) -> Channel:
        """As `Link.open`. Raises ConfigError where this computer has no ssh."""
        mark = secrets.token_hex(8)
        command = f"exec sh -c {shlex.quote(marked_script(call.script, call.token, mark))}"
        if len(os.fsencode(command)) > _MAX_SCRIPT_BYTES or "\0" in command:
            raise InternalError(
                f"a script of {len(call.script)} characters does not fit into one word, or has a "
                "NUL; pass its data by stdin"
            )
        with device_faults(self.serial, call.command):
            self._connection.require(call.deadline.remaining() or 1e-3)
        try:
            bridge = Bridge(self._connection.command(command), streams=MarkedStreams(mark))
        except OSError as error:
            raise ConfigError(f"ssh cannot be run: {error}") from error
        return Channel(bridge.socket, call.deadline)

    def connect(self, *, timeout_s: float) -> None:
        """As `Transport.connect`: check that we can log in, and that its login shell runs commands.

        A board that is booting is tried until the deadline.
        """
        deadline, lost = Deadline(timeout_s), None
        while True:
            try:
                with device_faults(self.serial, "connect"):
                    self._connection.require(deadline.remaining() or 1e-3)
                completed = self.shell("echo here", timeout_s=deadline.remaining(), doing="connect")
            except DeviceTimeout as error:
                # the earlier reason says more than that the last attempt took too long
                raise lost or error from None
            except DeviceLost as error:
                lost = error
                hopeless = any(words in error.problem for words in _HOPELESS)
                if hopeless or deadline.remaining() < _RETRY_S:
                    raise
            else:
                if completed.stdout == b"here\n":
                    return
                raise self._refused("its login shell runs no commands", "connect", completed.stderr)
            time.sleep(_RETRY_S)

    def reconnect(self, *, timeout_s: float) -> None:
        """As `Transport.reconnect`, for all that share the connection."""
        deadline = Deadline(timeout_s)
        self._connection.end(timeout_s=deadline.at_most(_END_S).seconds)
        self.connect(timeout_s=deadline.remaining())

    def is_there(self, *, timeout_s: float) -> bool:
        """Return whether it answers."""
        with contextlib.suppress(InfraError):
            return self.shell("true", timeout_s=timeout_s).ok
        return False

    def disconnect(self) -> None:
        """End the shared connection."""
        self._connection.end(timeout_s=_END_S)

    def reboot(self, *, timeout_s: float) -> None:
        """As `Transport.reboot`, by the command `reboot`, which needs root or sudo.

        The command outlives the call, so that the caller can wait for the board although the
        command is slow or the connection ends.
        """
        with contextlib.suppress(DeviceLost, DeviceTimeout):
            completed = self.shell(_REBOOT, timeout_s=timeout_s, doing="reboot")
            if not completed.ok:
                raise self._refused("it does not reboot", "reboot", completed.stderr)

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """As `Transport.push`."""
        if not files:
            return
        command = f"push {files[0].remote}" + (f" and {len(files) - 1} more" * (len(files) > 1))
        completed = self.shell(
            "tar -x -v -p -o -f - -C /",
            stdin=_tar(files, progress),
            timeout_s=timeout_s,
            max_output_bytes=_TAR_LINE_BYTES * (1 + len(files)),
            doing=command,
        )
        if not completed.ok:
            raise self._refused("its tar did not unpack the files", command, completed.stderr)
        # tar lists each file it has written; their user on the board may have moved them since
        if (written := completed.stdout.count(b"\n")) < len(files):
            problem = f"its tar has written {written} of {counted(len(files), 'file')}"
            raise self._error(problem, command)

    def stat(
        self, remote: str, *, timeout_s: float = SHORT_S, follow: bool = True
    ) -> RemoteStat | None:
        """As `Transport.stat`."""
        path_bytes(remote)
        command, path = f"stat {remote}", shlex.quote(remote)
        exists = f"[ -e {path} ]" if follow else f"[ -e {path} ]||[ -h {path} ]"
        option = "-L " if follow else ""
        completed = self.shell(
            f"{exists}||{{ echo none;exit; }};stat {option}-c '%f %s %Y' -- {path}",
            timeout_s=timeout_s,
            doing=command,
        )
        if completed.ok and completed.stdout == b"none\n":
            return None
        match = _STAT.fullmatch(completed.stdout)
        if match is None:
            raise self._refused("its stat gave no attributes", command, completed.stderr)
        return RemoteStat(int(match[1], 16), int(match[2]), int(match[3]))

    def _fetch(
        self, remote: str, sink: Callable[[bytes], None], deadline: Deadline, command: str
    ) -> None:
        completed = self.shell(
            f"cat -- {shlex.quote(remote)}",
            timeout_s=deadline.remaining(),
            on_stdout=sink,
            max_output_bytes=_ANY_BYTES,
            doing=command,
            collect=False,
        )
        if not completed.ok:
            raise self._refused("its cat did not read the file", command, completed.stderr)


def _tar(files: Iterable[PushItem], progress: Progress | None) -> Iterator[bytes]:
    """Yield the files as one tar, piece by piece; call `progress` once a piece was consumed.

    Raises InfraError if a file cannot be read.
    """
    sent = 0
    for file in files:
        path_bytes(file.remote)
        info = tarfile.TarInfo(file.remote.lstrip("/"))
        info.mode = file.mode & 0o7777
        with open_content(file) as content:
            info.size, info.mtime = content.size, int(content.mtime_s)
            yield info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
            for block in content.blocks:
                yield block
                sent += len(block)
                if progress is not None:
                    progress(sent)
        yield bytes(-info.size % _BLOCK)
    yield bytes(2 * _BLOCK)
