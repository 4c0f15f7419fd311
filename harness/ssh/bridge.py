"""Carries what one ssh and one socket say to each other, as packets of shell_v2."""

from __future__ import annotations

import contextlib
import os
import selectors
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
_END_S: Final = 5.0


class Bridge:
    """A thread between an ssh with three pipes and a socket on which somebody speaks shell_v2.

    The status that `mark` finds on ssh's stderr becomes the exit packet. Without one the socket is
    closed behind what ssh said, as a connection that broke. ssh is ended when the socket is closed.
    """

    def __init__(self, ssh: subprocess.Popen[bytes], mark: LastMark) -> None:
        assert ssh.stdin is not None
        assert ssh.stdout is not None
        assert ssh.stderr is not None
        self._ssh = ssh
        self._stdin, self._mark = ssh.stdin, mark
        self._kinds = {ssh.stdout.fileno(): STDOUT, ssh.stderr.fileno(): STDERR}
        self._packets = _StdinPackets()
        self._left = memoryview(b"")
        self._ours, self.socket = socket.socketpair()
        for fd in (self._stdin.fileno(), *self._kinds):
            os.set_blocking(fd, False)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with self._ours, self._ssh, contextlib.suppress(OSError):
            try:
                self._carry()
            finally:
                self._ssh.kill()

    def _carry(self) -> None:
        with selectors.DefaultSelector() as selector:
            for fd in self._kinds:
                selector.register(fd, selectors.EVENT_READ)
            self._watch(selector)
            while self._kinds:
                for key, _ in selector.select():
                    if key.fileobj is self._ours:
                        if not self._take():
                            return
                    elif key.fd in self._kinds and not self._give(key.fd):
                        selector.unregister(key.fd)
                        del self._kinds[key.fd]
                self._feed()
                self._watch(selector)
        if self._mark.status is not None:
            self._send(EXIT, bytes([self._mark.status & 0xFF]))

    def _watch(self, selector: selectors.BaseSelector) -> None:
        """Reads from the socket while there is room, and waits for room in ssh's stdin."""
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
        if (self._packets.closed and not self._left) and not self._stdin.closed:
            self._stdin.close()

    def _give(self, fd: int) -> bool:
        data = os.read(fd, _READ_BYTES)
        if self._kinds[fd] == STDOUT:
            self._send(STDOUT, data)
        else:
            said = self._mark.feed(data)
            self._send(STDERR, said if data else self._mark.rest())
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
