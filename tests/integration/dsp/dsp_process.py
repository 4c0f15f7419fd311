"""A client of a DSP's process without an arm64 side: it says in Python what wire.h has in C."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from harness.dsp.dsp import DspLimits, DspPrograms, DspReply, lay_out_dsp, read_replies

CHANNEL, MAP, UNMAP, QUEUE = 1, 2, 3, 4
OPEN, INVOKE, CLOSE = 1, 2, 3
IN_COPIED, OUT_COPIED, IN_MAPPED, OUT_MAPPED, HANDLE = range(5)
DELAYED: Final = 3
PATIENCE_S: Final = 60.0
_CONTROL: Final = 3


class DspGone(Exception):
    """The process ended in the middle of a call."""


@dataclass(frozen=True)
class Mapped:
    """Memory of the client's that both processes see."""

    fd: int
    offset: int
    size: int
    written: bool = False


@dataclass(frozen=True)
class Answer:
    """The answer to a call; `status` as the DSP's errors are written."""

    status: int
    value: int
    outputs: tuple[bytes, ...]


class Channel:
    """Calls, one after another."""

    def __init__(self, ours: socket.socket) -> None:
        """Over this socket, which is ours from now on."""
        self._socket = ours
        ours.settimeout(PATIENCE_S)

    def open(self, uri: str) -> Answer:
        """Opens the skel; `value` is the handle."""
        return self._call(OPEN, 0, 1 << 16, [uri.encode() + b"\0"], [])

    def close(self, handle: int) -> Answer:
        return self._call(CLOSE, handle, 0, [], [])

    def invoke(
        self,
        handle: int,
        method: int,
        inputs: Sequence[bytes | Mapped] = (),
        outputs: Sequence[int | Mapped] = (),
        handles: Sequence[int] = (),
    ) -> Answer:
        """Calls a method; outputs are sizes, or memory that is mapped."""
        scalars = method << 24 | len(inputs) << 16 | len(outputs) << 8 | len(handles) << 4
        return self._call(INVOKE, handle, scalars, inputs, outputs, handles)

    def shut(self) -> None:
        self._socket.close()

    def _call(
        self,
        kind: int,
        handle: int,
        scalars: int,
        inputs: Sequence[bytes | Mapped],
        outputs: Sequence[int | Mapped],
        handles: Sequence[int] = (),
    ) -> Answer:
        arguments = [_argument(argument) for argument in (*inputs, *outputs)]
        arguments += [struct.pack("<IiII", HANDLE, fd, 0, 0) for fd in handles]
        copied = b"".join(data for data in inputs if isinstance(data, bytes))
        head = struct.pack("<IIIIQ", kind, scalars, len(arguments), 0, handle)
        try:
            self._socket.sendall(head + b"".join(arguments) + copied)
            status, _, value = struct.unpack("<iIQ", self._whole(16))
        except (ConnectionError, BrokenPipeError) as error:
            raise DspGone(str(error)) from error
        back = tuple(self._whole(size) for size in outputs if isinstance(size, int))
        return Answer(status & 0xFFFFFFFF, value, back)

    def _whole(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL) if size else b""
        if len(data) != size:
            raise DspGone(f"{len(data)} of {size} bytes")
        return data


def _argument(argument: bytes | int | Mapped) -> bytes:
    if isinstance(argument, Mapped):
        kind = OUT_MAPPED if argument.written else IN_MAPPED
        return struct.pack("<IiII", kind, argument.fd, argument.offset, argument.size)
    kind, size = (OUT_COPIED, argument) if isinstance(argument, int) else (IN_COPIED, len(argument))
    return struct.pack("<IiII", kind, -1, 0, size)


class DspProcess:
    """One protection domain: the loader with a skel in the emulator, and its control socket."""

    def __init__(
        self, folder: Path, programs: DspPrograms, skel: Path, limits: DspLimits | None = None
    ) -> None:
        """Begins it, with a DSP's folder of its own in `folder`."""
        self.dsp = folder / "dsp"
        self._channels: list[Channel] = []
        lay_out_dsp(self.dsp, programs, limits or DspLimits())
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(PATIENCE_S)
        with theirs, (self.dsp / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [self.dsp / "qemu-hexagon", self.dsp / "loader", skel],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                close_fds=False,
                preexec_fn=lambda: os.dup2(theirs.fileno(), _CONTROL),
                env={"QNN_DSP": str(self.dsp)},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the control socket, with which the process ends, and all channels."""
        self.end()
        for channel in self._channels:
            channel.shut()

    def end(self) -> int:
        """Return the exit code of the process, once its client has gone."""
        self._control.close()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()

    def channel(self) -> Channel:
        """A new channel, which a thread of its own serves there."""
        ours, theirs = socket.socketpair()
        with theirs:
            assert self._request(CHANNEL, send=theirs.fileno()) == (0, 0)
        self._channels.append(Channel(ours))
        return self._channels[-1]

    def map(self, name: int, fd: int, size: int, flags: int = 0) -> tuple[int, int]:
        """Maps a file that the client calls `name`: status and address."""
        return self._request(MAP, name=name, flags=flags, size=size, send=fd)

    def unmap(self, name: int) -> int:
        """Takes one mapping of it back: the status."""
        return self._request(UNMAP, name=name)[0]

    def queue(self) -> tuple[socket.socket, int]:
        """A new queue: its socket, and the number by which the skel imports it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(PATIENCE_S)
        with theirs:
            status, number = self._request(QUEUE, send=theirs.fileno())
        assert status == 0
        return ours, number

    def log(self) -> str:
        return (self.dsp / "log").read_text(errors="replace")

    def said(self) -> tuple[DspReply, ...]:
        """The replies that the harness would read."""
        return read_replies(self.dsp)

    def _request(
        self, kind: int, *, name: int = -1, flags: int = 0, size: int = 0, send: int | None = None
    ) -> tuple[int, int]:
        request = struct.pack("<IiIIQ", kind, name, flags, 0, size)
        socket.send_fds(self._control, [request], [] if send is None else [send])
        answer = self._control.recv(16)
        if len(answer) != 16:
            raise DspGone(self.log())
        status, _, value = struct.unpack("<iIQ", answer)
        return status & 0xFFFFFFFF, value
