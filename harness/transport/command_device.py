"""Devices whose shell a program of this computer gives, such as `ssh` or `docker exec -i`."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shlex
import signal
import socket
import subprocess
import tarfile
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, DeviceError, DeviceRefused, InfraError, InternalError
from harness.core.linux_processes import has_ended
from harness.core.outgoing_text import counted
from harness.transport.deadline_socket import Channel
from harness.transport.device import SHORT_S, Transport
from harness.transport.files import (
    MAX_PATH_BYTES,
    Progress,
    PushItem,
    RemoteStat,
    open_content,
    path_bytes,
    receive_file,
)
from harness.transport.shell import ShellCall
from harness.transport.shell_protocol import (
    CLOSE_STDIN,
    EXIT,
    STDERR,
    STDIN,
    STDOUT,
    MarkedStreams,
    PacketReader,
    header,
    marked_script,
)

_READ_BYTES: Final = 64 << 10
_QUEUED_BYTES: Final = 256 << 10
_POLL_MS: Final = 10


class Bridge:
    """A local process, and a thread between it and a `socket` that speaks shell_v2.

    The exit packet has the process's own status, or with `streams` the status that they report.
    Without a status the socket is closed after the last output, as if the connection broke. When
    the socket is closed, the process and its group are ended; with `leaves_nothing` its group is
    ended in any case. Raises OSError or ValueError if the process cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        streams: MarkedStreams | None = None,
        leaves_nothing: bool = False,
    ) -> None:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            argv, env=env, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._streams, self._leaves_nothing = process, streams, leaves_nothing
        self._stdin, self._stdin_ends = process.stdin, False
        self._kinds = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}
        self._packets = PacketReader((STDIN, CLOSE_STDIN))
        self._pending = memoryview(b"")
        self._inner, self.socket = socket.socketpair()
        for fd in (self._stdin.fileno(), *self._kinds):
            os.set_blocking(fd, False)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with self._inner, self._process, contextlib.suppress(OSError):
            read_to_end = False
            try:
                read_to_end = self._relay()
            finally:
                if self._leaves_nothing or not read_to_end:
                    # it is not reaped yet, so the number still belongs to its group
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self._process.pid, signal.SIGKILL)
            status = self._status() if read_to_end else None
            if status is not None:
                self._send(EXIT, bytes([status & 0xFF]))

    def _relay(self) -> bool:
        """Relay data until the process has closed its outputs, and ended if its status is needed.

        Return False if the socket was closed before.
        """
        inner_fd = self._inner.fileno()
        while self._kinds or (self._streams is None and not has_ended(self._process)):
            poll = select.poll()
            for fd in self._kinds:
                poll.register(fd, select.POLLIN)
            # with a full queue only the end of the socket is awaited
            poll.register(inner_fd, select.POLLIN if len(self._pending) < _QUEUED_BYTES else 0)
            if self._pending and not self._stdin.closed:
                poll.register(self._stdin, select.POLLOUT)
            ready = dict(poll.poll(None if self._kinds else _POLL_MS))
            if ready.get(inner_fd, 0) & select.POLLIN:
                if not self._read_input():
                    return False
            elif inner_fd in ready:
                return False
            for fd in [fd for fd in self._kinds if fd in ready]:
                if not self._forward(fd):
                    del self._kinds[fd]
            self._feed()
        return True

    def _status(self) -> int | None:
        if self._streams is not None:
            return self._streams.status
        ended = self._process.wait()
        return ended if ended >= 0 else 128 - ended

    def _read_input(self) -> bool:
        received = self._inner.recv(_READ_BYTES)
        data = b""
        for kind, part in self._packets.feed(received):
            data += part
            self._stdin_ends |= kind == CLOSE_STDIN
        self._pending = memoryview(bytes(self._pending) + data)
        return bool(received)

    def _feed(self) -> None:
        try:
            while self._pending and not self._stdin.closed:
                written = os.write(self._stdin.fileno(), self._pending)
                self._pending = self._pending[written:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._pending = memoryview(b"")
            self._stdin_ends = True
        if self._stdin_ends and not self._pending and not self._stdin.closed:
            self._stdin.close()

    def _forward(self, fd: int) -> bool:
        data, kind = os.read(fd, _READ_BYTES), self._kinds[fd]
        output = data
        if self._streams is not None:
            output = self._streams.feed(kind, data) if data else self._streams.rest(kind)
        self._send(kind, output)
        return bool(data)

    def _send(self, kind: int, data: bytes) -> None:
        if data:
            self._inner.sendall(header(kind, len(data)) + data)


_BLOCK: Final = 512
_ANY_BYTES: Final = 1 << 62  # `receive_file` has the limit
_STAT: Final = re.compile(rb"([0-9a-f]{1,8}) ([0-9]{1,19}) ([0-9]{1,11})(?:\.[0-9]*)?\n")
_TAR_LINE_BYTES: Final = 5 * MAX_PATH_BYTES
_MAX_WORD_BYTES: Final = 100_000
"""Linux accepts at most 128 KiB as one word of a command line."""


class CommandTransport(Transport):
    """A device that runs scripts by a program of this computer, which vouches for each byte.

    The device needs a POSIX shell, tar, stat and grep. Files are sent as a tar on stdin.
    """

    is_checked = True

    @abstractmethod
    def command(self, script: str) -> Sequence[str]:
        """Return the command of this computer that runs a script in a shell of the device.

        Its stdin, stdout and stderr are those of the script.
        """

    def open(self, call: ShellCall) -> Channel:
        """As `RemoteShell.open`. Raises ConfigError where this computer cannot run the program."""
        mark = secrets.token_hex(8)
        command = self.command(marked_script(call.script, call.token, mark))
        if any(len(os.fsencode(word)) > _MAX_WORD_BYTES or "\0" in word for word in command):
            raise InternalError(
                f"a script of {len(call.script)} characters is too long for one argument, or has "
                "a NUL; pass its data by stdin"
            )
        try:
            bridge = Bridge(command, streams=MarkedStreams(mark))
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be run: {error}") from error
        return Channel(bridge.socket, call.deadline)

    def connect(self, *, timeout_s: float) -> None:
        """As `Transport.connect`: check that its shell runs commands."""
        completed = self.shell("echo here", timeout_s=timeout_s, doing="connect")
        if completed.stdout != b"here\n":
            raise self._refused(
                "the login shell of the device does not run commands", "connect", completed.stderr
            )

    def reconnect(self, *, timeout_s: float) -> None:
        """As `Transport.reconnect`: there is no connection to close."""
        self.connect(timeout_s=timeout_s)

    def disconnect(self) -> None:
        """Do nothing: there is no connection."""

    def is_there(self, *, timeout_s: float) -> bool:
        """Return whether it answers."""
        with contextlib.suppress(InfraError):
            return self.shell("true", timeout_s=timeout_s).ok
        return False

    def reboot(self, *, timeout_s: float) -> None:
        """Raise DeviceRefused."""
        raise self._refused("it cannot be rebooted", "reboot")

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
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
            raise self._refused(
                "tar on the device did not unpack the files", command, completed.stderr
            )
        # tar lists each file it has written; their user on the board may have moved them since
        if (written := completed.stdout.count(b"\n")) < len(files):
            problem = f"tar on the device wrote {written} of {counted(len(files), 'file')}"
            raise self._error(problem, command)

    def pull(self, remote: str, local: Path, *, timeout_s: float, max_bytes: int) -> None:
        deadline = Deadline(timeout_s)
        status = self.stat(remote, timeout_s=timeout_s)
        fetch = partial(self._fetch, remote, deadline=deadline, command=f"pull {remote}")
        receive_file(remote, local, max_bytes, status, fetch, serial=self.serial)

    def stat(self, remote: str, *, timeout_s: float = SHORT_S) -> RemoteStat | None:
        path_bytes(remote)
        command, path = f"stat {remote}", shlex.quote(remote)
        completed = self.shell(
            f"[ -e {path} ]||{{ echo none;exit; }};stat -L -c '%f %s %Y' -- {path}",
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
            raise self._refused(
                "cat on the device did not read the file", command, completed.stderr
            )

    def _error(self, problem: str, command: str) -> DeviceError:
        return DeviceError(problem, serial=self.serial, command=command)

    def _refused(self, problem: str, command: str, output: bytes = b"") -> DeviceRefused:
        words = " ".join(output[-500:].decode("utf-8", "replace").split())
        text = f"{problem}: {words}" if words else problem
        return DeviceRefused(text, serial=self.serial, command=command)


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
