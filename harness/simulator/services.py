"""Which service a host asks for by name, and what it gets.

The shell protocol v2 is that of AOSP's packages/modules/adb/shell_protocol.h.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.simulator.child import Child, spawn_with_pipes, spawn_with_terminal
from harness.simulator.protocol import Endpoint, Stream, StreamService
from harness.simulator.storage import Storage
from harness.simulator.sync_service import SyncSession
from harness.transport.faults import ProtocolError
from harness.transport.shell_protocol import (
    CLOSE_STDIN,
    EXIT,
    STDERR,
    STDIN,
    STDOUT,
    PacketReader,
    header,
)

_WINDOW_SIZE: Final = 5
_ALLOWED: Final = (STDIN, CLOSE_STDIN, _WINDOW_SIZE)
_READ_BYTES: Final = 128 * 1024
_LINGER_S: Final = 10.0
_END_OF_INPUT: Final = b"\x04"  # what a user types into a terminal: ^D


class ShellSession:
    """Connects a command with its stream until both outputs ended and the process is gone.

    Without `v2` there are neither packets nor an exit code: the bytes go as they are.
    """

    def __init__(
        self,
        stream: Stream,
        child: Child,
        *,
        v2: bool,
        on_end: Callable[[ShellSession], None],
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
        self._done = False
        self._fed = False
        self._packets = PacketReader(_ALLOWED)
        for fd in self._outputs:
            self._loop.add_reader(fd, self._read, fd)
        self._loop.add_reader(child.exit_fd, self._exit)

    def received(self, data: memoryview) -> bool:
        """Takes stdin and control packets; consumed once the command's pipe has them.

        The size of the host's terminal is not told to the command. Who sends something else is
        dropped.
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
        """Sends what came meanwhile, and reads on if it had to wait."""
        self._flush()
        if len(self._output) < self._stream.max_write:
            self._read_on()

    def closed(self) -> None:
        """Kills the command: its stream is gone.

        One without packets that was given input may finish with that first: to close its stream
        is the only way in which a host can end the input, as `adb exec-in` does.
        """
        self._output.clear()
        if self._fed and not (self._v2 or self._child.typed or self._stream.lost):
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
        """Kills whatever of the command is left."""
        if not self._done:
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
            except OSError:  # nobody reads it any more: what follows is taken and dropped
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
        if self._child.typed:
            self._feed_stdin(_END_OF_INPUT)
        elif self._to_stdin:
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
        except OSError:  # EIO: the last process has closed the terminal
            data = b""
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
            if len(self._output) <= size:
                self._stream.write(self._output)
                self._output = bytearray()
                if self._done:  # like adbd, which does not wait for the host to take the last bytes
                    self._stream.close()
            else:
                self._stream.write(self._output[:size])
                del self._output[:size]
        elif self._done:
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
        """Ends the command as adbd does: once it has exited and nobody holds its outputs."""
        if self._done or not self._exited or self._outputs:
            return
        self.kill()  # what it left in the background, its outputs elsewhere
        self._done = True
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
_TERMINAL_TYPE: Final = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_SHELL_NAME: Final = re.compile(r"shell((?:,[^:]*)?):(.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class ShellRequest:
    """What a name beginning with `shell` or `exec` asks for."""

    command: str
    v2: bool
    terminal: bool
    raw_terminal: bool
    terminal_type: str | None = None

    @property
    def interactive(self) -> bool:
        return self.terminal and not self.command

    @property
    def arguments(self) -> list[str]:
        return [_SHELL, "-c", self.command] if self.command else [_SHELL]


def parse_shell(name: str) -> ShellRequest | None:
    """Reads a service name such as `shell,v2,TERM=dumb,pty:ls`; None if it is another service.

    As in adbd: a terminal where no command is given, and also, but a raw one, where the host does
    not speak protocol v2, since only the end of a terminal reaches the command there.
    """
    if name.startswith("exec:"):
        command = name.removeprefix("exec:")
        if not command:
            return None
        return ShellRequest(command, v2=False, terminal=False, raw_terminal=False)
    found = _SHELL_NAME.match(name)
    if found is None:
        return None
    command = found[2]
    v2, terminal, terminal_type = False, not command, None
    for word in found[1].split(",")[1:]:
        if word == "v2":
            v2 = True
        elif word in ("raw", "pty"):
            terminal = word == "pty"
        elif word.startswith("TERM=") and _TERMINAL_TYPE.fullmatch(word[5:]):
            terminal_type = word[5:]
    raw_terminal = not v2 and not terminal
    return ShellRequest(command, v2, terminal or raw_terminal, raw_terminal, terminal_type)


class Silence:
    """A service that neither says anything nor ends by itself."""

    def received(self, data: memoryview) -> bool:
        """Takes whatever is sent, and drops it."""
        return True

    def writable(self) -> None:
        """Nothing is ever written."""

    def closed(self) -> None:
        """Nothing is left to do."""


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
        """What starts the service of that name, None if there is no such service."""
        name = os.fsdecode(raw_name)
        service = None if "\0" in name else self._find(name)
        self.note(f"{'service' if service else 'no service'} {name}")
        return service

    def kill_all(self) -> None:
        """Kills every running command."""
        for shell in self._shells:
            shell.kill()

    def _find(self, name: str) -> StreamService | None:
        request = parse_shell(name)
        if request is not None:
            return lambda stream: self._shell(stream, request)
        if name == "sync:":
            return lambda stream: SyncSession(stream, self.storage, self.note)
        if name.startswith("reboot:"):
            return lambda stream: self._reboot(name.removeprefix("reboot:"))
        return None

    def _shell(self, stream: Stream, request: ShellRequest) -> Endpoint:
        environment = dict(self.environment)
        if request.terminal_type is not None:
            environment["TERM"] = request.terminal_type
        if request.terminal:
            child = spawn_with_terminal(
                request.arguments,
                environment,
                raw=request.raw_terminal,
                interactive=request.interactive,
            )
        else:
            child = spawn_with_pipes(request.arguments, environment, joined=not request.v2)
        session = ShellSession(stream, child, v2=request.v2, on_end=self._shells.discard)
        self._shells.add(session)
        return session

    def _reboot(self, target: str) -> Endpoint:
        self.reboot(f"reboot,{target}" if target else "reboot,adb")
        return Silence()
