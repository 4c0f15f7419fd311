"""The services of the device's adb daemon, by name.

The shell protocol v2 is that of AOSP's packages/modules/adb/shell_protocol.h.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.simulator.child import Child, spawn
from harness.simulator.protocol import Endpoint, Stream, StreamService
from harness.simulator.storage import Storage
from harness.simulator.sync_service import SyncSession
from harness.transport.shell_protocol import (
    CLOSE_STDIN,
    EXIT,
    STDERR,
    STDIN,
    STDOUT,
    PacketReader,
    header,
)
from harness.transport.transport_errors import ProtocolError

_WINDOW_SIZE: Final = 5
_ALLOWED: Final = (STDIN, CLOSE_STDIN, _WINDOW_SIZE)
_READ_BYTES: Final = 128 * 1024
_LINGER_S: Final = 10.0


class ShellSession:
    """Connects a command with its stream until both outputs and the process have ended.

    Without `v2` there are neither packets nor an exit code: bytes are passed unchanged.
    """

    def __init__(
        self, stream: Stream, child: Child, *, v2: bool, on_end: Callable[[ShellSession], None]
    ) -> None:
        self._stream = stream
        self._child = child
        self._v2 = v2
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._outputs = {child.stdout: STDOUT}
        if child.stderr >= 0:
            self._outputs[child.stderr] = STDERR
        self._paused = False
        self._output = bytearray()
        self._to_stdin = bytearray()
        self._close_stdin_after = False
        self._exited = False
        self._is_finished = False
        self._fed = False
        self._packets = PacketReader(_ALLOWED)
        for fd in self._outputs:
            self._loop.add_reader(fd, self._read, fd)
        self._loop.add_reader(child.exit_fd, self._exit)

    def received(self, data: memoryview) -> bool:
        """Take stdin and control packets; they are consumed once the command's pipe has them.

        The size of the host's terminal is not passed on. A host that sends anything else is
        disconnected.
        """
        if not self._v2:
            self._feed_stdin(data)
            return not self._to_stdin
        try:
            for kind, piece in self._packets.feed(bytes(data)):
                if kind == STDIN:
                    self._feed_stdin(piece)
                elif kind == CLOSE_STDIN:
                    self._end_stdin()
        except ProtocolError:
            self._stream.close()
            self.closed()
        return not self._to_stdin

    def writable(self) -> None:
        self._flush()
        if len(self._output) < self._stream.max_write:
            self._read_on()

    def closed(self) -> None:
        """Kill the command, whose stream is gone.

        A command without packets may process its input first: closing the stream
        is the only way in which a host can end the input, as `adb exec-in` does.
        """
        self._output.clear()
        if self._fed and not (self._v2 or self._stream.lost):
            self._loop.call_later(_LINGER_S, self.kill)
            self._read_on()
            self._end_stdin()
            return
        self.kill()
        for fd in list(self._outputs):
            self._end_output(fd)
        self._shut_stdin()
        self._finish_if_over()

    def kill(self) -> None:
        if not self._is_finished:
            self._child.kill()

    def _feed_stdin(self, data: bytes | memoryview) -> None:
        fd = self._child.stdin
        if fd < 0 or self._close_stdin_after:
            return
        self._fed = True
        if not self._to_stdin:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                pass
            except OSError:  # nobody reads it any more: further input is dropped
                self._shut_stdin()
                return
            if not data:
                return
            self._loop.add_writer(fd, self._write_stdin)
        self._to_stdin += data

    def _write_stdin(self) -> None:
        try:
            del self._to_stdin[: os.write(self._child.stdin, self._to_stdin)]
        except BlockingIOError:
            return
        except OSError:
            self._shut_stdin()
            self._stream.acknowledge()
            return
        if self._to_stdin:
            return
        self._loop.remove_writer(self._child.stdin)
        if self._close_stdin_after:
            self._shut_stdin()
        self._stream.acknowledge()

    def _end_stdin(self) -> None:
        if self._to_stdin:
            self._close_stdin_after = True
        else:
            self._shut_stdin()

    def _shut_stdin(self) -> None:
        fd, self._child.stdin = self._child.stdin, -1
        self._to_stdin.clear()
        if fd >= 0:
            self._loop.remove_writer(fd)
            os.close(fd)

    def _read_on(self) -> None:
        if self._paused:
            self._paused = False
            for fd in self._outputs:
                self._loop.add_reader(fd, self._read, fd)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._end_output(fd)
            self._finish_if_over()
            return
        if self._stream.closed:
            return
        if self._v2:
            self._output += header(self._outputs[fd], len(data))
        self._output += data
        self._flush()
        if len(self._output) >= self._stream.max_write and not self._paused:
            self._paused = True
            for each in self._outputs:
                self._loop.remove_reader(each)

    def _flush(self) -> None:
        if not self._stream.ready:
            return
        if self._output:
            size = self._stream.max_write
            data, self._output = self._output, self._output[size:]
            self._stream.write(data[:size] if self._output else data)
        if self._is_finished and not self._output:
            # as adbd, which does not wait for the host to take the rest
            self._stream.close()

    def _end_output(self, fd: int) -> None:
        del self._outputs[fd]
        self._loop.remove_reader(fd)
        os.close(fd)

    def _exit(self) -> None:
        self._exited = True
        self._loop.remove_reader(self._child.exit_fd)
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        """End the command as adbd does: after it has exited and all outputs are closed."""
        if self._is_finished or not self._exited or self._outputs:
            return
        self.kill()  # background processes with other outputs
        self._is_finished = True
        code = self._child.reap()
        os.close(self._child.exit_fd)
        self._shut_stdin()
        self._on_end(self)
        if self._stream.closed:
            return
        if self._v2:
            self._output += header(EXIT, 1) + bytes([code & 0xFF])
        self._flush()


_SHELL: Final = "/bin/sh"
_SHELL_NAME: Final = re.compile(r"shell((?:,[^:]*)?):(.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class ShellRequest:
    """The request in a service name beginning with `shell` or `exec`."""

    command: str
    v2: bool


def parse_shell(name: str) -> ShellRequest | None:
    """Parse a service name such as `shell,v2,TERM=dumb,raw:ls`; None if it is another service.

    A terminal that the host requests is not made: the command gets pipes.
    """
    if name.startswith("exec:"):
        command = name.removeprefix("exec:")
        return ShellRequest(command, v2=False) if command else None
    match = _SHELL_NAME.match(name)
    if match is None:
        return None
    return ShellRequest(match[2], v2="v2" in match[1].split(","))


class Silence:
    """A service that neither sends anything nor ends by itself."""

    def received(self, data: memoryview) -> bool:
        return True

    def writable(self) -> None: ...

    def closed(self) -> None: ...


@dataclass
class Services:
    """The services of a booted device.

    `note` writes a line into the device's log, `reboot` takes a reason.
    """

    storage: Storage
    environment: Mapping[str, str]
    note: Callable[[str], None]
    reboot: Callable[[str], None] = lambda _: None
    _shells: set[ShellSession] = field(default_factory=set)

    def find(self, raw_name: bytes) -> StreamService | None:
        """Return the function that starts a service, None if there is no such service."""
        name = os.fsdecode(raw_name)
        service = None if "\0" in name else self._find(name)
        self.note(f"{'service' if service else 'no service'} {name}")
        return service

    def kill_all(self) -> None:
        for shell in self._shells:
            shell.kill()

    def _find(self, name: str) -> StreamService | None:
        request = parse_shell(name)
        if request is not None:
            return lambda stream: self._shell(stream, request)
        if name == "sync:":
            return lambda stream: SyncSession(stream, self.storage, self.note)
        if name.startswith("reboot:"):
            return lambda stream: self._reboot(name.removeprefix("reboot:") or "adb")
        return None

    def _shell(self, stream: Stream, request: ShellRequest) -> Endpoint:
        words = [_SHELL, "-c", request.command] if request.command else [_SHELL]
        child = spawn(words, self.environment, joined=not request.v2)
        session = ShellSession(stream, child, v2=request.v2, on_end=self._shells.discard)
        self._shells.add(session)
        return session

    def _reboot(self, target: str) -> Endpoint:
        self.reboot(f"reboot,{target}")
        return Silence()
