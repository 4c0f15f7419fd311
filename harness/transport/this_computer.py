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
    opened,
    path_bytes,
)
from harness.transport.shell import ShellCall
from harness.transport.shell_protocol import (
    CLOSE_STDIN,
    EXIT,
    STDERR,
    STDIN,
    STDOUT,
    PacketReader,
    ToldStreams,
    header,
    v2_script,
)

_READ_BYTES: Final = 64 << 10
_QUEUED_BYTES: Final = 256 << 10
_POLL_MS: Final = 10


class Bridge:
    """Begins a process of ours, and a thread between it and a `socket` that speaks shell_v2.

    The exit packet tells the process's own status; with `told`, the status that its streams tell.
    Without a status the socket is closed after the last output, as if the connection broke. When
    the socket is closed the process is ended, with its group; `leaves_nothing`: its group is ended
    in any case. Raises OSError or ValueError if the process cannot be begun.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        told: ToldStreams | None = None,
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
        self._process, self._told, self._leaves_nothing = process, told, leaves_nothing
        self._stdin, self._stdin_ends = process.stdin, False
        self._kinds = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}
        self._packets = PacketReader((STDIN, CLOSE_STDIN))
        self._left = memoryview(b"")
        self._ours, self.socket = socket.socketpair()
        for fd in (self._stdin.fileno(), *self._kinds):
            os.set_blocking(fd, False)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with self._ours, self._process, contextlib.suppress(OSError):
            heard_out = False
            try:
                heard_out = self._carry()
            finally:
                if self._leaves_nothing or not heard_out:
                    # it is not reaped yet, so that the number is still its group's
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self._process.pid, signal.SIGKILL)
            status = self._status() if heard_out else None
            if status is not None:
                self._send(EXIT, bytes([status & 0xFF]))

    def _carry(self) -> bool:
        """Carries until the process has closed its outputs, and has ended if it is to tell how.

        False if the socket was closed before.
        """
        ours = self._ours.fileno()
        while self._kinds or (self._told is None and not has_ended(self._process)):
            poll = select.poll()
            for fd in self._kinds:
                poll.register(fd, select.POLLIN)
            # without room for more only its end is waited for
            poll.register(ours, select.POLLIN if len(self._left) < _QUEUED_BYTES else 0)
            if self._left and not self._stdin.closed:
                poll.register(self._stdin, select.POLLOUT)
            ready = dict(poll.poll(None if self._kinds else _POLL_MS))
            if ready.get(ours, 0) & select.POLLIN:
                if not self._take():
                    return False
            elif ours in ready:
                return False
            for fd in [fd for fd in self._kinds if fd in ready]:
                if not self._give(fd):
                    del self._kinds[fd]
            self._feed()
        return True

    def _status(self) -> int | None:
        if self._told is not None:
            return self._told.status
        ended = self._process.wait()
        return ended if ended >= 0 else 128 - ended

    def _take(self) -> bool:
        received = self._ours.recv(_READ_BYTES)
        data = b""
        for kind, part in self._packets.feed(received):
            data += part
            self._stdin_ends |= kind == CLOSE_STDIN
        self._left = memoryview(bytes(self._left) + data)
        return bool(received)

    def _feed(self) -> None:
        try:
            while self._left and not self._stdin.closed:
                written = os.write(self._stdin.fileno(), self._left)
                self._left = self._left[written:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._left = memoryview(b"")
            self._stdin_ends = True
        if self._stdin_ends and not self._left and not self._stdin.closed:
            self._stdin.close()

    def _give(self, fd: int) -> bool:
        data, kind = os.read(fd, _READ_BYTES), self._kinds[fd]
        said = data
        if self._told is not None:
            said = self._told.feed(kind, data) if data else self._told.rest(kind)
        self._send(kind, said)
        return bool(data)

    def _send(self, kind: int, data: bytes) -> None:
        if data:
            self._ours.sendall(header(kind, len(data)) + data)


SERIAL: Final = "this-computer"


class ThisComputer(PacketTransport):
    """Runs scripts here. A process that a script becomes by `exec` is our own child."""

    def __init__(self) -> None:
        super().__init__(SERIAL)
        self._env: dict[str, str] | None = None
        self._leaves_nothing = False

    @classmethod
    def for_plans(cls, env: Mapping[str, str]) -> ThisComputer:
        """This computer for plans that need no device: `env` and PATH are all of their environment.

        What they have begun ends with them. `end_leftovers` of a device that is this computer, too,
        does not touch it.
        """
        made = cls()
        made.serial = "this-host"
        made._env = {"PATH": os.environ.get("PATH", os.defpath), **env}
        made._leaves_nothing = True
        return made

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
        """Nothing: it is here."""

    def reconnect(self, *, timeout_s: float) -> None:
        """Nothing: it is here."""

    def disconnect(self) -> None:
        """Nothing: there is no connection."""

    def is_there(self, *, timeout_s: float) -> bool:
        """Whether it can be asked: it is here."""
        return True

    def reboot(self, *, timeout_s: float) -> None:
        """Raises DeviceRefused: whoever runs the tests runs here, too."""
        raise self._refused("this computer is not rebooted", "reboot")

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """As `Transport.push`: copies them."""
        deadline, sent = Deadline(timeout_s), 0
        for file in files:
            command = f"push {file.remote}"
            with self._faults(command), opened(file) as content:
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
                found = os.stat(path_bytes(remote), follow_symlinks=follow)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return RemoteStat(found.st_mode, found.st_size, int(found.st_mtime))

    def _fetch(
        self, remote: str, take: Callable[[bytes], None], deadline: Deadline, command: str
    ) -> None:
        with self._faults(command), open_regular(Path(remote)) as source:
            blocks = iter(lambda: source.read(BLOCK_BYTES), b"")
            for block in self._in_time(blocks, deadline, command):
                take(block)

    @contextlib.contextmanager
    def _faults(self, command: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refused(error.strerror or str(error), command) from error
