"""This computer as a device: its shell, its files."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import DeviceTimeout, InfraError
from harness.core.platform import has_ended
from harness.core.whole_file import open_regular
from harness.transport.channel import Channel
from harness.transport.device import SHORT_S, PacketTransport
from harness.transport.files import (
    BLOCK_BYTES,
    Progress,
    PushItem,
    RemoteStat,
    open_content,
    path_bytes,
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
    v2_script,
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
            argv,
            env=env,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            start_new_session=True,
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


SERIAL: Final = "this-computer"


class ThisComputer(PacketTransport):
    """Runs scripts here. A process that a script becomes by `exec` is our own child."""

    def __init__(self) -> None:
        super().__init__(SERIAL)
        self._env: dict[str, str] | None = None
        self._leaves_nothing = False

    @classmethod
    def for_plans(cls, env: Mapping[str, str]) -> ThisComputer:
        """Return this computer for plans that need no device; their environment is `env` and PATH.

        Their processes end with them. `end_leftovers` of a lab's device that is this computer does
        not touch them.
        """
        computer = cls()
        computer.serial = "this-host"
        computer._env = {"PATH": os.environ.get("PATH", os.defpath), **env}
        computer._leaves_nothing = True
        return computer

    def open(self, call: ShellCall) -> Channel:
        """As `Link.open`. Raises InfraError if no shell can be started."""
        script = call.script if call.token is None else v2_script(call.script, call.token)
        try:
            bridge = Bridge(
                ["sh", "-c", script], env=self._env, leaves_nothing=self._leaves_nothing
            )
        except (OSError, ValueError) as error:
            raise InfraError(f"cannot start a shell on this computer: {error}") from error
        return Channel(bridge.socket, call.deadline)

    def connect(self, *, timeout_s: float) -> None:
        """Do nothing: there is no connection."""

    def reconnect(self, *, timeout_s: float) -> None:
        """Do nothing: there is no connection."""

    def disconnect(self) -> None:
        """Do nothing: there is no connection."""

    def is_there(self, *, timeout_s: float) -> bool:
        """Return True: it is always reachable."""
        return True

    def reboot(self, *, timeout_s: float) -> None:
        """Raise DeviceRefused: the tests run here, too."""
        raise self._refused("this computer is not rebooted", "reboot")

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """As `Transport.push`: copies them."""
        deadline, sent = Deadline(timeout_s), 0
        for file in files:
            command = f"push {file.remote}"
            with self._faults(command), open_content(file) as content:
                path = path_bytes(file.remote)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # it may be running
                with open(path, "xb", buffering=0) as target:
                    for block in self._in_time(content.blocks, deadline, command):
                        target.write(block)
                        sent += len(block)
                        if progress is not None:
                            progress(sent)
                    os.fchmod(target.fileno(), file.mode)
                os.utime(path, (content.mtime_s, content.mtime_s))

    def _in_time(
        self, blocks: Iterable[bytes], deadline: Deadline, command: str
    ) -> Iterator[bytes]:
        for block in blocks:
            yield block
            if deadline.expired:
                problem = f"not done within {deadline.seconds:g} s"
                raise DeviceTimeout(problem, serial=self.serial, command=command)

    def stat(
        self, remote: str, *, timeout_s: float = SHORT_S, follow: bool = True
    ) -> RemoteStat | None:
        """As `Transport.stat`."""
        with self._faults(f"stat {remote}"):
            try:
                status = os.stat(path_bytes(remote), follow_symlinks=follow)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return RemoteStat(status.st_mode, status.st_size, int(status.st_mtime))

    def _fetch(
        self, remote: str, sink: Callable[[bytes], None], deadline: Deadline, command: str
    ) -> None:
        with self._faults(command), open_regular(Path(remote)) as source:
            blocks = iter(lambda: source.read(BLOCK_BYTES), b"")
            for block in self._in_time(blocks, deadline, command):
                sink(block)

    @contextlib.contextmanager
    def _faults(self, command: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refused(error.strerror or str(error), command) from error
