"""A socket that sends and receives at once, and never waits beyond a deadline."""

from __future__ import annotations

import select
import socket
from collections import deque

from harness.core.deadline import Deadline
from harness.transport.transport_errors import ProtocolError

RECEIVE_BYTES = 256 * 1024
_MAX_BUFFERS = 512  # below IOV_MAX, 1024 on Linux
_SMALL_BYTES = 32 * 1024
_MAX_MESSAGE_BYTES = 64 * 1024


class Channel:
    """A socket whose queued output is sent while its input is awaited.

    Sending and receiving must overlap: a device that answers while it still takes input stops
    taking it when nobody reads its answers. Raises TimeoutError at the deadline, EOFError when the
    other side closed, OSError when the connection broke.
    """

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._deadline = deadline
        self._queue: deque[memoryview] = deque()
        self._buffer = bytearray()
        self._poll = select.poll()
        self._watched = 0
        self.queued_bytes = 0
        self.send_error: OSError | None = None

    def queue(self, *buffers: bytes | memoryview) -> None:
        """Queue output; nothing is sent before the next `flush_some` or `receive`."""
        if self.send_error is not None:
            return
        for buffer in filter(len, buffers):
            self._queue.append(memoryview(buffer))
            self.queued_bytes += len(buffer)

    def renew(self, deadline: Deadline) -> None:
        """Go on with another deadline."""
        self._deadline = deadline

    def stop_sending(self, deadline: Deadline) -> None:
        """Drop the queued output, and go on with another deadline."""
        self.renew(deadline)
        self._queue.clear()
        self.queued_bytes = 0

    def flush_some(self) -> None:
        """Send as much as the socket takes without waiting.

        A send that fails sets `send_error` and raises nothing: the answer may already be on its
        way, so what can still be received decides what happened.
        """
        while self._queue:
            batch = [self._queue[i] for i in range(min(len(self._queue), _MAX_BUFFERS))]
            if len(batch) > 1 and self.queued_bytes <= _SMALL_BYTES:
                batch = [memoryview(b"".join(batch))]
            try:
                sent = self._socket.sendmsg(batch)
            except BlockingIOError:
                return
            except OSError as error:
                self.send_error = error
                self._queue.clear()
                self.queued_bytes = 0
                return
            self.queued_bytes -= sent
            self._drop(sent)

    def _drop(self, sent: int) -> None:
        while sent:
            first = self._queue[0]
            if sent < len(first):
                self._queue[0] = first[sent:]
                return
            sent -= len(first)
            self._queue.popleft()

    def recv(self, count: int) -> bytes:
        """Return exactly `count` bytes. Raises ProtocolError for more than a message's 64 KiB."""
        if not 0 <= count <= _MAX_MESSAGE_BYTES:
            raise ProtocolError(f"a message of {count} bytes")
        while len(self._buffer) < count:
            self._buffer += self._receive(0)
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    @property
    def has_input(self) -> bool:
        """True if received input is waiting in the buffer."""
        return bool(self._buffer)

    def make_room(self, below: int) -> None:
        """Send until fewer than `below` bytes are queued; input that arrives is buffered."""
        self._buffer += self._receive(below)
        while self.send_error is None and self.queued_bytes >= below:
            self._buffer += self._receive(below)

    def receive(self, *, room_below: int = 0) -> bytes:
        """Return the input that has arrived, waiting for it if need be.

        With `room_below`, returns b"" as soon as fewer bytes of output are queued, so that a sender
        of much data can go on. Without it, returns only with input.
        """
        if self._buffer:
            data, self._buffer = bytes(self._buffer), bytearray()
            return data
        return self._receive(room_below)

    def _receive(self, room_below: int) -> bytes:
        while True:
            # also when there is always something to receive
            if self._deadline.expired:
                raise TimeoutError(f"not done within {self._deadline.seconds:g} s")
            self.flush_some()
            if self.send_error is None and self.queued_bytes < room_below:
                return self._receive_now()
            mask = select.POLLIN | (select.POLLOUT if self._queue else 0)
            if mask != self._watched:
                self._poll.register(self._socket, mask)
                self._watched = mask
            # rounded up: a wait of 0.4 ms must not become a busy loop of 0 ms
            events = self._poll.poll(int(self._deadline.remaining() * 1000) + 1)
            if events and events[0][1] & ~select.POLLOUT:
                return self._receive_now()

    def _receive_now(self) -> bytes:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise EOFError("closed by the other side")
        return data

    def close(self) -> None:
        """Close the socket at once."""
        self._socket.close()
