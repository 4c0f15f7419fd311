"""The bytes of a shell: packets of shell_v2, and streams with marks in them. Pure.

shell_v2 is documented in the Android sources (packages/modules/adb, shell_protocol.h): one byte of
id, four of length (little-endian), then the data.
"""

from __future__ import annotations

import re
import shlex
import struct
from collections.abc import Collection, Iterator

from harness.transport.faults import ProtocolError

STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
CLOSE_STDIN_PACKET = struct.pack("<BI", CLOSE_STDIN, 0)
TOKEN_VARIABLE = "QNN_HARNESS_CALL"
"""Every process of a script carries this variable, so that those that left its group are found."""

_HEADER = struct.Struct("<BI")
_MAX_SIGNAL = 64
_MAX_BANNER_BYTES = 64 * 1024
# compiled once for all tokens: a pattern per call would cost as much as the call's own work
_FIRST_MARK = re.compile(rb"\x1e([0-9a-f]+) ([0-9]{1,10})\n")
_LAST_MARK = re.compile(rb"\x1e([0-9a-f]+) =([0-9]{1,3})\n")


def header(kind: int, length: int) -> bytes:
    """The five bytes in front of a packet's data."""
    return _HEADER.pack(kind, length)


class PacketReader:
    """Cuts a received stream into packets.

    Data is handed on as it comes, so that no packet has to fit in memory; an exit packet is whole,
    and an empty one has its turn, too. Raises ProtocolError for ids that are not `allowed`: by
    default those that a device sends.
    """

    def __init__(self, allowed: Collection[int] = (STDOUT, STDERR, EXIT)) -> None:
        self._allowed = allowed
        self._header = b""
        self._kind = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The (id, data) pairs that `data` completes."""
        position = 0
        while position < len(data):
            if self._left == 0:
                taken = data[position : position + _HEADER.size - len(self._header)]
                position += len(taken)
                self._header += taken
                if len(self._header) < _HEADER.size:
                    return
                self._kind, self._left = _HEADER.unpack(self._header)
                self._header = b""
                if self._kind not in self._allowed:
                    raise ProtocolError(f"unknown shell packet {self._kind}")
                if self._kind == EXIT and self._left != 1:
                    raise ProtocolError(f"exit packet of {self._left} bytes")
                if not self._left:
                    yield self._kind, b""
                continue
            taken = data[position : position + self._left]
            position += len(taken)
            self._left -= len(taken)
            yield self._kind, taken


def exit_status(status: int) -> tuple[int | None, int | None]:
    """(exit code, signal) of the status a shell reports: one of them is None.

    A daemon and a shell both report 128 + n for death by signal n; a script that chooses such a
    code itself cannot be told apart.
    """
    if 128 < status <= 128 + _MAX_SIGNAL:
        return None, status - 128
    return status, None


def v2_script(script: str, token: str) -> str:
    """The script, preceded on its first line by a word on stderr that tells its process group."""
    return f"export {TOKEN_VARIABLE}={token};echo '\x1e{token}' $$ >&2;{script}"


def told_script(script: str, token: str | None, mark: str) -> str:
    """As `v2_script`, for a daemon that does not tell what ended a program (`ToldStreams`).

    Both streams begin with `mark`, since a login shell may print before. The status follows on
    stderr behind another one. The shell that tells it stays out of the script's process group. It
    carries the token neither in its environment nor, thanks to the empty quotes, on its command
    line. So it can tell of processes that were ended, too.
    """
    named = ""
    if token is not None:
        named = f"export {TOKEN_VARIABLE}''={token};"
        script = f"echo '\x1e{token}' $$ >&2;{script}"
    return (
        f"echo '\x1e{mark}' 0;echo '\x1e{mark}' 0 >&2;"
        f"s=;command -v setsid >/dev/null&&s=setsid;exec 3>&2 2>/dev/null;{named}"
        f"(exec $s sh -c {shlex.quote(script)} 2>&3 3>&-);echo '\x1e{mark}' =$? >&3"
    )


def _find(mark: re.Pattern[bytes], data: bytes, token: bytes) -> re.Match[bytes] | None:
    return next((match for match in mark.finditer(data) if match[1] == token), None)


class Banner:
    """Takes the first mark out of a stream, which tells the process group.

    Something else may stand before it (a linker's warning), which is passed on, unless it `drops`
    that.
    """

    def __init__(self, token: str, *, drops: bool = False) -> None:
        self._drops = drops
        self._token = token.encode()
        self._held = b""
        self._done = False
        self.group: int | None = None

    def feed(self, data: bytes) -> bytes:
        """The part of `data`, and of what was held back, that is output."""
        if self._done:
            return data
        self._held += data
        match = _find(_FIRST_MARK, self._held, self._token)
        if match is None and len(self._held) <= _MAX_BANNER_BYTES:
            return b""
        if match is None:
            return self.rest()
        # `kill -9 -0` and `-1` would hit far more than a group of ours
        group = int(match[2])
        self.group = group if group > 1 else None
        before = b"" if self._drops else self._held[: match.start()]
        output = before + self._held[match.end() :]
        self._held, self._done = b"", True
        return output

    def rest(self) -> bytes:
        """What was held back for a mark that did not come."""
        self._done = True
        held, self._held = self._held, b""
        return held


class LastMark:
    """Takes the mark with the status out of a stream, which may go on behind it."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._longest = len(token) + len("\x1e =255\n")
        self._held = b""
        self.status: int | None = None

    def feed(self, data: bytes) -> bytes:
        """The part of `data`, and of what was held back, that is output."""
        if self.status is not None:
            return data
        self._held += data
        match = _find(_LAST_MARK, self._held, self._token)
        if match is not None:
            self.status = int(match[2])
            output, behind = self._held[: match.start()], self._held[match.end() :]
            self._held = b""
            return output + behind
        # a mark may be under way in the last bytes
        start = self._held.rfind(b"\x1e", -self._longest)
        if start < 0:
            start = len(self._held)
        output, self._held = self._held[:start], self._held[start:]
        return output

    def rest(self) -> bytes:
        """What was held back for a mark that did not come."""
        held, self._held = self._held, b""
        return held


class ToldStreams:
    """The two outputs of a `told_script`: what it printed, and its `status` once that is known.

    What a stream says before the first mark is not the script's. Only `rest` gives it, for a stream
    that ended without a mark.
    """

    def __init__(self, mark: str) -> None:
        self._first = {STDOUT: Banner(mark, drops=True), STDERR: Banner(mark, drops=True)}
        self._last = LastMark(mark)

    @property
    def status(self) -> int | None:
        return self._last.status

    def feed(self, kind: int, data: bytes) -> bytes:
        """The part of `data`, and of what was held back, that the script has printed there."""
        said = self._first[kind].feed(data)
        return said if kind == STDOUT else self._last.feed(said)

    def rest(self, kind: int) -> bytes:
        """What was held back for a mark that did not come."""
        held = self._first[kind].rest()
        return held if kind == STDOUT else self._last.rest() + held
