"""A mock of the place where an adb server listens."""

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable
from typing import cast

from harness.core.deadline import Deadline
from harness.transport.adb_address import ServerAddress
from harness.transport.adb_client import Client, Device, SyncStream

OKAY = b"OKAY"


def block(text: str) -> bytes:
    """A text as the server sends it."""
    return b"%04x%b" % (len(text.encode()), text.encode())


class MockAddress:
    """A server that sends given pieces, each after it has received something more."""

    host, port, is_here, start_advice = "mock", 1, True, "start it"

    def __init__(
        self, *pieces: bytes, serve: Callable[[socket.socket], None] | None = None
    ) -> None:
        self._pieces = pieces
        self._serving = serve or self._say
        self._threads: list[threading.Thread] = []
        self._heard = b""

    def __str__(self) -> str:
        return "mock"

    def connect(self, _timeout_s: float) -> socket.socket:
        near, far = socket.socketpair()
        thread = threading.Thread(target=self._serving, args=(far,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return near

    def _say(self, far: socket.socket) -> None:
        with far, contextlib.suppress(OSError):
            for piece in self._pieces:
                self._heard += far.recv(1 << 16)
                far.sendall(piece)
            far.shutdown(socket.SHUT_WR)
            while piece := far.recv(1 << 16):
                self._heard += piece

    def sent(self) -> bytes:
        """Return the received bytes, once the other side has closed the connections."""
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        return self._heard

    def client(self, seconds: float = 20) -> Client:
        return Client(cast(ServerAddress, self), Deadline(seconds))

    def device(self, seconds: float = 20) -> Device:
        return self.client(seconds).device("x")

    def sync(self, seconds: float = 20) -> SyncStream:
        return SyncStream(self.device(seconds))


def dribbling(first: bytes, then: bytes) -> MockAddress:
    """Says one byte after another, `then` ever again, so that no receive waits for long."""

    def serve(far: socket.socket) -> None:
        with far, contextlib.suppress(OSError):
            for byte in itertools.chain(first, itertools.cycle(then)):
                time.sleep(0.005)
                far.sendall(bytes([byte]))

    return MockAddress(serve=serve)
