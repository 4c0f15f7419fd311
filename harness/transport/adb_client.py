"""adbutils as the harness uses it: subclasses with what it lacks (2.12), and why.

- Importing it loads Pillow and requests: 60 ms and 11 MB of each worker (`_LazyModule`).
- It starts a server where none answers, by the adb on PATH; it knows no Unix sockets, and sleeps
  10 ms to close a connection (`Connection`).
- Its timeouts are for each receive, so that a device that says a little now and then is waited for
  without end; a stalled sync has none. Here one deadline is for all of an action, and each message
  has a bound, since a device may say any length (`Channel`).
- A cut link is short data or AdbError("connection closed"), like a refusal. Here it is EOFError or
  OSError, what is no adb is ProtocolError, and a refusal AdbFailError (`Connection.check_okay`).
- Each service costs a connection more, to ask the server's version (`Device.open_transport`).
- A shell has no stdin, collects all output without a bound, and cannot be heard while it runs. So
  `Device.open_service` opens `shell,v2,raw:`, and `transport/shell.py` speaks on it.
- A push takes a connection for each file and waits for its answer, sends 4 KiB at a time, loses the
  device's words when that refuses, and the file's modification time; a stat knows no size above
  4 GiB, no link's target and no reason; a pull leaves half a file (`SyncStream`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_IFREG
from types import ModuleType
from typing import Any, Final

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, DeviceError, DeviceRefused
from harness.transport.adb_address import ServerAddress
from harness.transport.deadline_socket import Channel
from harness.transport.files import (
    BLOCK_BYTES,
    Progress,
    PushItem,
    RemoteStat,
    open_content,
    path_bytes,
    receive_file,
)
from harness.transport.transport_errors import (
    NO_SERVER,
    AdbFailError,
    NoServerError,
    OutOfReachError,
    ProtocolError,
    Reach,
    device_faults,
)


class _LazyModule(ModuleType):
    """A placeholder for a module, which is imported at its first use."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # an annotation that is evaluated
            return Any
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _loaded_later(*names: str) -> Iterator[None]:
    placeholders = {name: _LazyModule(name) for name in names if name not in sys.modules}
    sys.modules.update(placeholders)
    try:
        yield
    except ValueError as error:
        field = "ANDROID_ADB_SERVER_PORT"  # it is read when adbutils is imported
        raise ConfigError(f"not a port: {os.environ.get(field)!r}", field=field) from error
    finally:
        for name in placeholders:
            del sys.modules[name]


with _loaded_later("requests", "PIL.Image"):
    import adbutils as adbutils

MAX_REQUEST_BYTES: Final = 0xFFFF
"""A request to the adb server carries its length in four hex digits."""

_PATIENT_S: Final = 2.0
_CHUNK_BYTES: Final = 64 << 10  # the most that one DATA message may carry
_MAX_UNANSWERED: Final = 256
_STAT_V2: Final = struct.Struct("<IQQIIIIQqqq")


class Refusal(AdbFailError, adbutils.AdbError):  # type: ignore[misc]  # adbutils carries no types
    """The server's text after FAIL, for the harness and for adbutils' own methods."""


class Connection(adbutils.AdbConnection):  # type: ignore[misc]
    """A connection to an adb server; `conn` is its `Channel`, which has the deadline.

    Raises NoServerError, TimeoutError, AdbFailError, ProtocolError, OSError, EOFError.
    """

    def __init__(self, address: ServerAddress, deadline: Deadline) -> None:
        self._address, self._deadline = address, deadline
        self._reach = None if address.is_here else Reach(address)
        super().__init__(address.host, address.port)

    def _safe_connect(self) -> Channel:
        """As adbutils' method, which starts a server."""
        # a remote server that was unreachable a moment ago is not tried by every process
        address, deadline, reach = self._address, self._deadline, self._reach
        timeout_s = deadline.remaining() or 1e-3
        if reach is not None:
            reach.require()
        try:
            return Channel(address.connect(timeout_s), deadline)
        except OSError as error:
            late = isinstance(error, TimeoutError)
            why = f"adb server at {address} is out of reach: {error.strerror or error}"
            # a caller that had no time to wait has learned nothing
            if reach is not None and (not late or timeout_s >= _PATIENT_S):
                reach.mark_lost(str(error) if isinstance(error, OutOfReachError) else why)
            if isinstance(error, OutOfReachError):
                raise
            # a Unix socket says EAGAIN at once where a TCP port lets one wait in line
            if late or isinstance(error, BlockingIOError):
                why = f"adb server at {address} does not answer within {deadline.seconds:g} s"
                raise TimeoutError(why) from error
            raise NoServerError(f"{NO_SERVER}{address}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close it at once; safe to call twice."""
        self.conn.close()

    def read(self, n: int) -> bytes:
        """Return exactly `n` bytes. Raises EOFError if the connection ends before."""
        # ssh takes connections also where nobody listens at the other end of its tunnel
        try:
            data: bytes = self.conn.recv(n)
        except (ConnectionError, EOFError) as error:
            if self._reach is None:
                raise
            why = f"{NO_SERVER}{self._address}: {error}"
            self._reach.mark_lost(why)
            raise NoServerError(why) from error
        if self._reach is not None:
            self._reach.mark_reached()
            self._reach = None
        return data

    def send_command(self, cmd: str | bytes) -> None:
        """Queue a request, which may be of any bytes. Raises ProtocolError if it is too long."""
        text = cmd.encode("utf-8", "surrogateescape") if isinstance(cmd, str) else cmd
        if len(text) > MAX_REQUEST_BYTES:
            raise ProtocolError(f"a request of {len(text)} bytes is too long")
        self.conn.queue(b"%04x%b" % (len(text), text))

    def check_okay(self) -> None:
        """Read the status of the last request."""
        status = self.read(4)
        if status == b"FAIL":
            raise Refusal(self.read_string_block())
        if status != b"OKAY":
            raise ProtocolError(f"{self._address} did not answer like an adb server: {status!r}")


class Client(adbutils.AdbClient):  # type: ignore[misc]
    """The client of one server for one action, whose connections all have its deadline."""

    def __init__(self, address: ServerAddress, deadline: Deadline) -> None:
        super().__init__(address.host, address.port or -1)
        self._address, self._deadline = address, deadline

    def make_connection(self, timeout: float | None = None) -> Connection:
        """Return a new connection; `timeout` is ignored."""
        return Connection(self._address, self._deadline)

    def open(self, *requests: str | bytes) -> Connection:
        """Return a connection on which the server accepted each of the requests."""
        connection = self.make_connection()
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(connection.close)
            for request in requests:
                connection.send_command(request)
                connection.check_okay()
            cleanup.pop_all()
        return connection

    def query(self, request: str) -> str:
        """Return the answer to a request that adbutils has no method for."""
        with self.open(request) as connection:
            answer: str = connection.read_string_block()
            return answer

    def device(self, serial: str) -> Device:
        """A device, attached or not."""
        return Device(self, serial)


class Device(adbutils.AdbDevice):  # type: ignore[misc]
    """A device for one action."""

    def open_transport(self, command: str | None = None, timeout: float = 0) -> Connection:
        """Connect to services of the device, or with a `command` to the server about it."""
        way = f"host-serial:{self.serial}:{command}" if command else self._transport
        connection: Connection = self._client.open(way)
        return connection

    @property
    def _transport(self) -> str:
        return f"host:transport:{self.serial}"  # every server knows it

    def open_service(self, service: str | bytes) -> Channel:
        """Open a channel to one of the device's services."""
        channel: Channel = self._client.open(self._transport, service).conn
        return channel


@dataclass
class _Outgoing:
    """A file being sent; once `whole`, all of it is queued, so that the device may answer."""

    item: PushItem
    size: int = 0
    whole: bool = False


class SyncStream(adbutils.Sync):  # type: ignore[misc]
    """File operations on a device, all over one connection and under one deadline.

    After an error other than a missing file it cannot be used any more. Raises DeviceRefused with
    the device's own text, DeviceLost, DeviceTimeout, DeviceError where what arrived differs from
    what was sent, InfraError where a local file cannot be read or written.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._serial = device.serial
        self._command = "sync:"
        self._unanswered: deque[_Outgoing] = deque()
        with device_faults(self._serial, self._command):
            self.conn = device.open_service(self._command)

    def __enter__(self) -> SyncStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream, which makes the device drop a file that arrived only in part."""
        self.conn.close()

    @contextlib.contextmanager
    def _prepare_sync(self, path: str, cmd: str) -> Iterator[SyncStream]:
        """As adbutils' method, but over this stream: adbutils opens a connection for each file."""
        self._request(path, cmd)
        yield self
        if cmd == "RECV":
            self.read(4)  # a length behind DONE

    def _request(self, path: str, cmd: str) -> None:
        encoded = path_bytes(path)
        self.conn.queue(cmd.encode() + struct.pack("<I", len(encoded)) + encoded)

    def read(self, length: int) -> bytes:
        """Return exactly `length` bytes."""
        with device_faults(self._serial, self._command):
            return self.conn.recv(length)

    def read_string(self, length: int) -> str:
        """Return the word that a message begins with. Raises DeviceRefused for FAIL."""
        word = self.read(length)
        if word == b"FAIL":
            text = self.read(*struct.unpack("<I", self.read(4))).decode("utf-8", "replace")
            raise self._error(text or "the device refused and gave no reason", DeviceRefused)
        return word.decode("ascii", "replace")

    def _error(self, problem: str, kind: type[DeviceError] = DeviceError) -> DeviceError:
        return kind(problem, serial=self._serial, command=self._command)

    def _strange(self, word: str) -> DeviceError:
        return self._error(f"unexpected answer: {word!r}")

    def stat(self, path: str) -> RemoteStat | None:
        self._command = f"stat {path}"
        self._request(path, "STA2")
        status = self._read_stat()
        if status.is_missing:
            return None
        if status.error:
            raise self._error(os.strerror(status.error), DeviceRefused)
        return status

    def _read_stat(self) -> RemoteStat:
        word = self.read_string(4)
        if word not in ("STA2", "LST2"):
            raise self._strange(word)
        error, _, _, mode, _, _, _, size, _, mtime_s, _ = _STAT_V2.unpack(self.read(_STAT_V2.size))
        return RemoteStat(mode, size, mtime_s, error)

    def pull(self, remote: str, local: Path, max_bytes: int) -> None:
        """Fetch one file, as `Transport.pull`."""

        def fetch(sink: Callable[[bytes], None]) -> None:
            self._command = f"pull {remote}"
            try:
                for content in self.iter_content(remote):
                    sink(content)
            except adbutils.AdbError as error:
                raise self._strange(str(error.args[-1])) from error

        receive_file(remote, local, max_bytes, self.stat(remote), fetch, serial=self._serial)

    def push(self, items: Iterable[PushItem], progress: Progress | None = None) -> None:
        """As `Transport.push`, without waiting between files; the size of each is checked."""
        handed_over = reported = 0

        def report() -> None:
            nonlocal reported
            # headers are queued, too: what has surely been sent grows by fits and starts
            reported = max(reported, handed_over - self.conn.queued_bytes)
            if progress is not None:
                progress(reported)

        for item in items:
            sent = _Outgoing(item)
            with open_content(item) as content:
                while len(self._unanswered) >= _MAX_UNANSWERED:
                    self._take_answer()
                    report()
                self._request(f"{item.remote},{S_IFREG | (item.mode & 0o7777)}", "SEND")
                self._unanswered.append(sent)
                for block in content.blocks:
                    for start in range(0, len(block), _CHUNK_BYTES):
                        chunk = memoryview(block)[start : start + _CHUNK_BYTES]
                        self.conn.queue(b"DATA" + struct.pack("<I", len(chunk)), chunk)
                    sent.size += len(block)
                    handed_over += len(block)
                    if self.conn.queued_bytes >= BLOCK_BYTES:
                        self._command = f"push {item.remote}"
                        with device_faults(self._serial, self._command):
                            self.conn.make_room(BLOCK_BYTES)
                        while self.conn.has_input:
                            self._take_answer()
                        report()
                mtime_s = max(0, min(int(content.mtime_s), 0xFFFFFFFF))
                self.conn.queue(b"DONE" + struct.pack("<I", mtime_s))
                sent.whole = True
                self._request(item.remote, "LST2")
        while self._unanswered:
            self._take_answer()
            report()
        report()

    def _take_answer(self) -> None:
        sent = self._unanswered[0]
        self._command = f"push {sent.item.remote}"
        if (word := self.read_string(4)) != "OKAY" or not sent.whole:
            raise self._strange(word)
        self.read(4)  # a length of nothing
        arrived = self._read_stat()
        if arrived.size != sent.size or arrived.error:
            raise self._error(f"{sent.size} bytes were sent, but {arrived.size} arrived")
        self._unanswered.popleft()
