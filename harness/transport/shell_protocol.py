"""The protocol of a shell: packets of shell_v2, and streams with marks in them. Pure.

shell_v2 is documented in the Android sources (packages/modules/adb, shell_protocol.h): one byte of
id, four of length (little-endian), then the data.
"""

from __future__ import annotations

import re
import shlex
import struct
from collections.abc import Collection, Iterator

from harness.transport.transport_errors import ProtocolError

STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
CLOSE_STDIN_PACKET = struct.pack("<BI", CLOSE_STDIN, 0)
TOKEN_VARIABLE = "QNN_HARNESS_CALL"
"""An environment variable of every process of a script, to find those that left its group."""

_HEADER = struct.Struct("<BI")
_MAX_SIGNAL = 64
_MAX_BANNER_BYTES = 64 * 1024
# compiled once for all tokens: a pattern per call would cost as much as the call's own work
_FIRST_MARK = re.compile(rb"\x1e([0-9a-f]+) ([0-9]{1,10})\n")
_LAST_MARK = re.compile(rb"\x1e([0-9a-f]+) =([0-9]{1,3})\n")


def header(kind: int, length: int) -> bytes:
    """Return the five bytes in front of a packet's data."""
    return _HEADER.pack(kind, length)


class PacketReader:
    """Cuts a received stream into packets.

    Data is passed on as it arrives, so that no packet has to fit in memory; an exit packet is
    whole, and an empty packet is passed on, too. Raises ProtocolError for ids that are not
    `allowed`: by default those that a device sends.
    """

    def __init__(self, allowed: Collection[int] = (STDOUT, STDERR, EXIT)) -> None:
        self._allowed = allowed
        self._header = b""
        self._kind = 0
        self._remaining = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the (id, data) pairs in `data`."""
        position = 0
        while position < len(data):
            if self._remaining == 0:
                part = data[position : position + _HEADER.size - len(self._header)]
                position += len(part)
                self._header += part
                if len(self._header) < _HEADER.size:
                    return
                self._kind, self._remaining = _HEADER.unpack(self._header)
                self._header = b""
                if self._kind not in self._allowed:
                    raise ProtocolError(f"unknown shell packet {self._kind}")
                if self._kind == EXIT and self._remaining != 1:
                    raise ProtocolError(f"exit packet of {self._remaining} bytes")
                if not self._remaining:
                    yield self._kind, b""
                continue
            part = data[position : position + self._remaining]
            position += len(part)
            self._remaining -= len(part)
            yield self._kind, part


def exit_status(status: int) -> tuple[int | None, int | None]:
    """Return (exit code, signal) for the status a shell reports; one of them is None.

    A daemon and a shell both report 128 + n for death by signal n; a script that exits with such a
    code itself cannot be distinguished.
    """
    if 128 < status <= 128 + _MAX_SIGNAL:
        return None, status - 128
    return status, None


def v2_script(script: str, token: str) -> str:
    """Return the script, preceded on its first line by an echo of its process group to stderr."""
    return f"export {TOKEN_VARIABLE}={token};echo '\x1e{token}' $$ >&2;{script}"


def marked_script(script: str, token: str | None, mark: str) -> str:
    """As `v2_script`, for a daemon that does not report a program's signal (`MarkedStreams`).

    Both streams begin with `mark`, since a login shell may print something before. The status
    follows on stderr after a second mark. The shell that prints it is not in the script's process
    group, and carries the token neither in its environment nor, thanks to the empty quotes, on its
    command line. So it can also report the status of processes that were ended.
    """
    export = ""
    if token is not None:
        export = f"export {TOKEN_VARIABLE}''={token};"
        script = f"echo '\x1e{token}' $$ >&2;{script}"
    return (
        f"echo '\x1e{mark}' 0;echo '\x1e{mark}' 0 >&2;"
        f"s=;command -v setsid >/dev/null&&s=setsid;exec 3>&2 2>/dev/null;{export}"
        f"(exec $s sh -c {shlex.quote(script)} 2>&3 3>&-);echo '\x1e{mark}' =$? >&3"
    )


def _find(mark: re.Pattern[bytes], data: bytes, token: bytes) -> re.Match[bytes] | None:
    return next((match for match in mark.finditer(data) if match[1] == token), None)


class Banner:
    """Removes the first mark, which names the process group, from a stream.

    Output before it (a linker's warning) is passed on, or dropped if `drops`.
    """

    def __init__(self, token: str, *, drops: bool = False) -> None:
        self._drops = drops
        self._token = token.encode()
        self._buffer = b""
        self._finished = False
        self.group: int | None = None

    def feed(self, data: bytes) -> bytes:
        """Return the output in `data` and in what was held back before."""
        if self._finished:
            return data
        self._buffer += data
        match = _find(_FIRST_MARK, self._buffer, self._token)
        if match is None and len(self._buffer) <= _MAX_BANNER_BYTES:
            return b""
        if match is None:
            return self.rest()
        # `kill -9 -0` and `-1` would hit far more than a group of ours
        group = int(match[2])
        self.group = group if group > 1 else None
        before = b"" if self._drops else self._buffer[: match.start()]
        output = before + self._buffer[match.end() :]
        self._buffer, self._finished = b"", True
        return output

    def rest(self) -> bytes:
        """Return what was held back for a mark that did not arrive."""
        self._finished = True
        rest, self._buffer = self._buffer, b""
        return rest


class LastMark:
    """Removes the mark with the status from a stream, which may continue after it."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._longest = len(token) + len("\x1e =255\n")
        self._buffer = b""
        self.status: int | None = None

    def feed(self, data: bytes) -> bytes:
        """Return the output in `data` and in what was held back before."""
        if self.status is not None:
            return data
        self._buffer += data
        match = _find(_LAST_MARK, self._buffer, self._token)
        if match is not None:
            self.status = int(match[2])
            output, behind = self._buffer[: match.start()], self._buffer[match.end() :]
            self._buffer = b""
            return output + behind
        # the last bytes may be the beginning of a mark
        start = self._buffer.rfind(b"\x1e", -self._longest)
        if start < 0:
            start = len(self._buffer)
        output, self._buffer = self._buffer[:start], self._buffer[start:]
        return output

    def rest(self) -> bytes:
        """Return what was held back for a mark that did not arrive."""
        rest, self._buffer = self._buffer, b""
        return rest


class MarkedStreams:
    """The two output streams of a `marked_script`, and its `status` once that is known.

    Output before the first mark is not the script's. Only `rest` returns it, for a stream that
    ended without a mark.
    """

    def __init__(self, mark: str) -> None:
        self._first = {STDOUT: Banner(mark, drops=True), STDERR: Banner(mark, drops=True)}
        self._last = LastMark(mark)

    @property
    def status(self) -> int | None:
        return self._last.status

    def feed(self, kind: int, data: bytes) -> bytes:
        """Return the output of the script in `data` and in what was held back before."""
        output = self._first[kind].feed(data)
        return output if kind == STDOUT else self._last.feed(output)

    def rest(self, kind: int) -> bytes:
        """Return what was held back for a mark that did not arrive."""
        rest = self._first[kind].rest()
        return rest if kind == STDOUT else self._last.rest() + rest
