"""An open `sync:` service of a device: requests out, replies in, errors told apart."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from harness.adb.channel import Channel
from harness.adb.deadline import Deadline
from harness.adb.faults import ProtocolError, device_faults, reason
from harness.adb.server import AdbServer
from harness.adb.sync_protocol import Dialect, Fail, Reply, ReplyReader
from harness.errors import DeviceError, DeviceRefused, InfraError

QUEUED_BYTES = 256 * 1024
"""A sender goes on reading its files while less than this waits to be sent."""


class SyncLink:
    """The stream below the file operations; all of its waits share one deadline.

    Every method that waits raises DeviceLost or DeviceTimeout; `command` names the operation in
    errors.
    """

    def __init__(
        self, server: AdbServer, serial: str, features: frozenset[str], deadline: Deadline
    ) -> None:
        self.serial = serial
        self.dialect = Dialect.of(features)
        self._reader = ReplyReader(self.dialect)
        self._replies: deque[Reply] = deque()
        self._channel = Channel(server.transport(serial, "sync:", deadline), deadline)

    def close(self) -> None:
        """Closes the stream, which makes the device drop a file it has half."""
        self._channel.close()

    def queue(self, *messages: bytes | memoryview) -> None:
        """Queues messages, to be sent by the next call that waits."""
        self._channel.queue(*messages)

    @property
    def queued_bytes(self) -> int:
        """What is queued and not yet sent."""
        return self._channel.queued_bytes

    @property
    def must_send(self) -> bool:
        """Whether so much is queued that a sender should stop and `exchange`."""
        return self._channel.queued_bytes >= QUEUED_BYTES

    def exchange(self, command: str) -> None:
        """Sends until there is room for more messages; takes in what has arrived."""
        self._take(command, room_below=QUEUED_BYTES)

    def reply(self, command: str) -> Reply:
        """The next reply. Raises DeviceRefused with the device's words for a FAIL."""
        while not self._replies:
            self._take(command)
        return self._checked(self._replies.popleft(), command)

    def arrived(self, command: str) -> Reply | None:
        """The next reply if it is there already; as `reply` otherwise."""
        return self._checked(self._replies.popleft(), command) if self._replies else None

    @contextlib.contextmanager
    def listing(self) -> Iterator[None]:
        """While inside, DONE ends a list of names instead of a file."""
        self._reader.listing = True
        try:
            yield
        finally:
            self._reader.listing = False

    def nonsense(self, reply: Reply, command: str) -> DeviceError:
        """The error for a reply that does not belong to what was asked."""
        return self.error(f"an answer that was not asked for: {type(reply).__name__}", command)

    def error(self, problem: str, command: str) -> DeviceError:
        """A DeviceError of this device."""
        return DeviceError(problem, serial=self.serial, command=command)

    def refused(self, problem: str, command: str) -> DeviceRefused:
        """A DeviceRefused of this device."""
        return DeviceRefused(problem, serial=self.serial, command=command)

    def _checked(self, reply: Reply, command: str) -> Reply:
        if isinstance(reply, Fail):
            raise self.refused(reply.text or "the device refused without a word", command)
        return reply

    def _take(self, command: str, *, room_below: int = 0) -> None:
        with device_faults(self.serial, command):
            received = self._channel.receive(room_below=room_below)
            self._replies.extend(self._reader.feed(received))


@contextlib.contextmanager
def valid_path(command: str) -> Iterator[None]:
    """Turns a path that cannot even be sent into InfraError."""
    try:
        yield
    except ProtocolError as error:
        raise InfraError(f"{command}: {error}") from error


@contextlib.contextmanager
def local_faults(path: Path) -> Iterator[None]:
    """Turns the host's own refusal (no such file, disk full) into InfraError naming the file."""
    try:
        yield
    except OSError as error:
        raise InfraError(f"{path} on this host: {error.strerror or reason(error)}") from error
