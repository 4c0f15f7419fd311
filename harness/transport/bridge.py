"""Carries what one process with three pipes and one socket say to each other, as packets."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import struct
import subprocess
import threading
from typing import Final

from harness.transport.shell_protocol import (
    CLOSE_STDIN,
    EXIT,
    STDERR,
    STDIN,
    STDOUT,
    LastMark,
    header,
)

_READ_BYTES: Final = 64 << 10
_QUEUED_BYTES: Final = 256 << 10
_HEADER: Final = struct.Struct("<BI")
_POLL_S: Final = 0.01


class Bridge:
    """A thread between a process of ours and a `socket` on which somebody speaks shell_v2.

    The exit packet tells the process's own status; with `mark`, the status that this finds on its
    stderr: without one the socket is closed behind what was said, as a connection that broke. When
    the socket is closed the process is ended, with its group, which it must lead.
    """

    def __init__(self, process: subprocess.Popen[bytes], mark: LastMark | None = None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin, self._mark = process.stdin, mark
        self._kinds = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}
        self._packets = _StdinPackets()
        self._left = memoryview(b"")
        self._ours, self.socket = socket.socketpair()
        for fd in (self._stdin.fileno(), *self._kinds):
            os.set_blocking(fd, False)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with self._ours, self._process, contextlib.suppress(OSError):
            heard_out = False
            try:
                heard_out = self._carry() and (self._mark is not None or self._awaited())
            finally:
                # it is not reaped yet, so that the number is still its group's
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            status = self._status()
            if heard_out and status is not None:
                self._send(EXIT, bytes([status & 0xFF]))

    def _carry(self) -> bool:
        """Carries until the process has closed its outputs; False if the socket was closed."""
        with selectors.DefaultSelector() as selector:
            for fd in self._kinds:
                selector.register(fd, selectors.EVENT_READ)
            self._watch(selector)
            while self._kinds:
                for key, _ in selector.select():
                    if key.fileobj is self._ours:
                        if not self._take():
                            return False
                    elif key.fd in self._kinds and not self._give(key.fd):
                        selector.unregister(key.fd)
                        del self._kinds[key.fd]
                self._feed()
                self._watch(selector)
        return True

    def _awaited(self) -> bool:
        """Waits for the end of a process that has closed its outputs; False as `_carry`."""
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        self._ours.settimeout(_POLL_S)
        while os.waitid(os.P_PID, self._process.pid, how) is None:
            with contextlib.suppress(TimeoutError):
                if not self._ours.recv(_READ_BYTES):
                    return False
        self._ours.settimeout(None)
        return True

    def _status(self) -> int | None:
        if self._mark is not None:
            return self._mark.status
        ended = self._process.wait()
        return ended if ended >= 0 else 128 - ended

    def _watch(self, selector: selectors.BaseSelector) -> None:
        """Reads from the socket while there is room, and waits for room in the process's stdin."""
        wanted: dict[object, int] = {}
        if len(self._left) < _QUEUED_BYTES:
            wanted[self._ours] = selectors.EVENT_READ
        if self._left and not self._stdin.closed:
            wanted[self._stdin] = selectors.EVENT_WRITE
        for one in (self._ours, self._stdin):
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(one)
            if one in wanted:
                selector.register(one, wanted[one])

    def _take(self) -> bool:
        data = self._ours.recv(_READ_BYTES)
        self._left = memoryview(bytes(self._left) + self._packets.feed(data))
        return bool(data)

    def _feed(self) -> None:
        try:
            while self._left and not self._stdin.closed:
                written = os.write(self._stdin.fileno(), self._left)
                self._left = self._left[written:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._left = memoryview(b"")
            self._packets.closed = True
        if self._packets.closed and not self._left and not self._stdin.closed:
            self._stdin.close()

    def _give(self, fd: int) -> bool:
        data = os.read(fd, _READ_BYTES)
        said = data
        if self._kinds[fd] == STDERR and self._mark is not None:
            said = self._mark.feed(data) if data else self._mark.rest()
        self._send(self._kinds[fd], said)
        return bool(data)

    def _send(self, kind: int, data: bytes) -> None:
        if data:
            self._ours.sendall(header(kind, len(data)) + data)


class _StdinPackets:
    """Takes stdin's data out of the packets that come for it."""

    def __init__(self) -> None:
        self._held = b""
        self.closed = False

    def feed(self, data: bytes) -> bytes:
        self._held += data
        found = []
        while len(self._held) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._held)
            if len(self._held) < _HEADER.size + length:
                break
            body = self._held[_HEADER.size : _HEADER.size + length]
            self._held = self._held[_HEADER.size + length :]
            self.closed |= kind == CLOSE_STDIN
            if kind == STDIN:
                found.append(body)
        return b"".join(found)
