"""A fake DSP: speaks the wire to libcdsprpc.so instead of a Hexagon program that loads a skel.

`install` writes the program that stands where the emulator does. Its methods are known to
`tests/integration/dsp/fastrpc.py`. In `$QNN_DSP/seen` it writes what it was begun with.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import sys
import threading
import time
from enum import IntEnum
from pathlib import Path
from typing import Final

CONTROL: Final = 3
REQUEST: Final = struct.Struct("<IiIIQ")
ANSWER: Final = struct.Struct("<iIQ")
HEAD: Final = struct.Struct("<IIIIQ")
ARGUMENT: Final = struct.Struct("<IiII")
PACKET: Final = struct.Struct("<IIII")
CHANNEL, MAP, UNMAP, QUEUE = 1, 2, 3, 4
OPEN, INVOKE, CLOSE = 1, 2, 3
IN_COPIED, OUT_COPIED, IN_MAPPED, OUT_MAPPED, HANDLE = range(5)


class Method(IntEnum):
    """The fake's action when it is invoked."""

    REVERSE = 2  # out 0 = in 0, backwards
    FAIL = 3  # answers 0x80000401
    DIE = 4
    SLEEP = 5
    MAPPED = 6  # out 0 = the fds that are mapped, as text
    STAMP = 7  # writes "here" into the file that a handle names, at its offset


def install(folder: Path) -> Path:
    """The program that stands where the emulator does."""
    program = folder / "fake-emulator"
    here = str(Path(__file__))
    program.write_text(
        f"#!{sys.executable} -I\nimport runpy\nrunpy.run_path({here!r}, run_name='__main__')\n"
    )
    program.chmod(0o755)
    return program


class FakeDsp:
    """One process: control socket, channels, queues."""

    def __init__(self) -> None:
        """Tells what it was begun with."""
        self.control = socket.socket(fileno=CONTROL)
        self.maps: dict[int, mmap.mmap] = {}
        calls = Path(os.environ["QNN_DSP"], "seen")
        fds = sorted(map(int, os.listdir("/proc/self/fd")))[:-1]
        names = " ".join(sorted(os.environ.keys() - {"LC_CTYPE"}))
        line = f"{os.getpid()}\t{' '.join(sys.argv[1:])}\t{fds}\t{names}\n"
        with calls.open("a") as file:
            file.write(line)

    def serve(self) -> None:
        """Until the client is gone."""
        while True:
            data, fds, _, _ = socket.recv_fds(self.control, REQUEST.size, 1)
            if not data:
                os._exit(0)
            kind, fd, _, _, length = REQUEST.unpack(data)
            value = 0
            if kind == MAP:
                value = 0x40000000 + fd * 0x1000
                self.maps[fd] = mmap.mmap(fds[0], length)
                os.close(fds[0])
            elif kind == UNMAP:
                self.maps.pop(fd).close()
            elif kind in (CHANNEL, QUEUE):
                serve = self.channel if kind == CHANNEL else self.queue
                value = 7
                threading.Thread(target=serve, args=(socket.socket(fileno=fds[0]),)).start()
            self.control.send(ANSWER.pack(0, 0, value))

    def channel(self, channel: socket.socket) -> None:
        """Answers one call after the other."""
        file = channel.makefile("rb")
        while head := file.read(HEAD.size):
            kind, scalars, count, _, _handle = HEAD.unpack(head)
            arguments = [ARGUMENT.unpack(file.read(ARGUMENT.size)) for _ in range(count)]
            inputs = [file.read(size) for how, _, _, size in arguments if how == IN_COPIED]
            status, value, out = 0, 0, b""
            if kind == OPEN:
                value = 0x1000 + len(inputs[0])
                status = 0x80000442 - (1 << 32) if b"no_such_symbol" in inputs[0] else 0
            elif kind == INVOKE:
                status, out = self.invoke(scalars >> 24 & 0x1F, arguments, inputs)
            parts = [ANSWER.pack(status, 0, value)]
            for how, fd, offset, size in arguments:
                if how == OUT_MAPPED:
                    self.maps[fd][offset : offset + min(size, len(out))] = out[:size]
                elif how == OUT_COPIED:
                    parts.append(out[:size].ljust(size, b"\0"))
            channel.sendall(b"".join(parts))

    def invoke(
        self, method: int, arguments: list[tuple[int, ...]], inputs: list[bytes]
    ) -> tuple[int, bytes]:
        """The status, and the bytes of out 0."""
        if method == Method.DIE:
            os._exit(9)
        if method == Method.SLEEP:
            time.sleep(60)
        if method == Method.FAIL:
            return 0x80000401 - (1 << 32), b""
        if method == Method.MAPPED:
            return 0, " ".join(map(str, sorted(self.maps))).encode()
        for kind, fd, offset, size in arguments:
            if kind == HANDLE:
                self.maps[fd][offset : offset + 4] = b"here"
            elif kind == IN_MAPPED:
                return 0, self.maps[fd][offset : offset + size][::-1]
            elif kind == IN_COPIED:
                return 0, inputs[0][::-1]
        return 0, b""

    def queue(self, queue: socket.socket) -> None:
        """Sends every packet back; its message is turned round."""
        while data := queue.recv(1 << 20):
            _flags, buffers, size, _ = PACKET.unpack(data[: PACKET.size])
            start = PACKET.size + 24 * buffers
            if data[start:] == b"die":
                os._exit(9)
            queue.send(data[:start] + data[start : start + size][::-1])


if __name__ == "__main__":
    FakeDsp().serve()
