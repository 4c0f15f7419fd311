"""Files to and from a device over one stream: verified, and nothing half-done is kept."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from harness.device.adb.server import AdbServer
from harness.device.adb.sync_protocol import (
    CHUNK_BYTES,
    Dialect,
    Fail,
    FileData,
    FileEnd,
    Okay,
    Reply,
    ReplyReader,
    data_header,
    done,
)
from harness.device.transport.channel import Channel
from harness.device.transport.faults import device_faults
from harness.device.transport.files import (
    IncomingFile,
    Progress,
    PushItem,
    RemoteStat,
    is_sized,
    local_faults,
)
from harness.ground.errors import DeviceError, DeviceRefused, InfraError
from harness.ground.files.whole_file import open_regular
from harness.ground.host.deadline import Deadline

_READ_BYTES = 4 * CHUNK_BYTES
_MAX_UNANSWERED = 256

QUEUED_BYTES = 256 * 1024
"""A sender goes on reading its files while less than this waits to be sent."""


class SyncLink:
    """The stream below the file operations; all of its waits share one deadline.

    What is queued in `channel` is sent by the next method that waits. Each of these raises
    DeviceLost or DeviceTimeout; `command` names the operation in errors.
    """

    def __init__(
        self, server: AdbServer, serial: str, features: frozenset[str], deadline: Deadline
    ) -> None:
        self.serial = serial
        self.dialect = Dialect.of(features)
        self._reader = ReplyReader()
        self._replies: deque[Reply] = deque()
        self.channel = Channel(server.transport(serial, "sync:", deadline), deadline)

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
            self._replies.extend(self._reader.feed(self.channel.receive(room_below=room_below)))


@dataclass
class _Sent:
    command: str
    size: int
    checked: bool = True
    taken: bool = False


class Pusher:
    """Sends files over an open stream; see `SyncStream.push`."""

    def __init__(self, link: SyncLink, progress: Progress | None) -> None:
        self._link = link
        self._progress = progress
        self._handed_over = 0
        self._reported = 0
        self._unanswered: deque[_Sent] = deque()

    def run(self, items: Iterable[PushItem]) -> None:
        """Sends all items and waits until the device has taken the last one."""
        for item in items:
            while len(self._unanswered) >= _MAX_UNANSWERED:
                self._wait_for_answer()
            self._send(item)
        while self._unanswered:
            self._wait_for_answer()
        self._report()

    def _send(self, item: PushItem) -> None:
        command = f"push {item.remote}"
        link = self._link
        begin = link.dialect.send(item.remote, item.mode)
        check = link.dialect.stat(item.remote, follow=False) if item.checked else b""
        sent = _Sent(command, 0, item.checked)
        if isinstance(item.source, bytes):
            link.channel.queue(begin)
            # until all of it is queued, an answer can only be a refusal, and it is for this file
            self._unanswered.append(sent)
            self._queue_content(sent, memoryview(item.source))
            link.channel.queue(done(int(time.time())), check)
            return
        with local_faults(item.source):
            source = open_regular(item.source, item.size)
        with source:
            status = os.fstat(source.fileno())
            link.channel.queue(begin)
            self._unanswered.append(sent)
            while sent.size < status.st_size:
                with local_faults(item.source):
                    block = source.read(min(_READ_BYTES, status.st_size - sent.size))
                if not block:
                    raise InfraError(f"{item.source} on this host became shorter meanwhile")
                self._queue_content(sent, memoryview(block))
        link.channel.queue(done(int(status.st_mtime)), check)

    def _queue_content(self, sent: _Sent, content: memoryview) -> None:
        sent.size += len(content)
        for start in range(0, len(content), CHUNK_BYTES):
            chunk = content[start : start + CHUNK_BYTES]
            self._link.channel.queue(data_header(len(chunk)), chunk)
            self._handed_over += len(chunk)
            if self._link.channel.queued_bytes >= QUEUED_BYTES:
                self._link.exchange(self._unanswered[0].command)
                self._collect()
                self._report()

    def _collect(self) -> None:
        while self._unanswered and (reply := self._link.arrived(self._unanswered[0].command)):
            self._answered(reply)

    def _wait_for_answer(self) -> None:
        self._answered(self._link.reply(self._unanswered[0].command))
        self._report()

    def _answered(self, reply: object) -> None:
        sent = self._unanswered[0]
        if isinstance(reply, Okay) and not sent.taken:
            sent.taken = True
            if not sent.checked:
                self._unanswered.popleft()
        elif isinstance(reply, RemoteStat) and sent.taken:
            if not same_size(reply.size, sent.size, self._link.dialect.stat_v2) or reply.error:
                raise self._link.error(
                    f"{sent.size} bytes were sent, {reply.size} arrived", sent.command
                )
            self._unanswered.popleft()
        else:
            raise self._link.nonsense(reply, sent.command)  # type: ignore[arg-type]

    def _report(self) -> None:
        if self._progress is not None:
            # headers are queued, too: what has surely been sent grows by fits and starts
            self._reported = max(
                self._reported, self._handed_over - self._link.channel.queued_bytes
            )
            self._progress(self._reported)


def same_size(told: int, true: int, exact: bool) -> bool:
    """Whether a size that a device tells fits; the first protocol version tells 32 bits of it."""
    return told == true if exact else told == true % (1 << 32)


class SyncStream:
    """File operations on a device, all over one stream and under one deadline.

    After an error other than that a file is missing, the stream is of no more use. Every method
    raises DeviceRefused with the device's own words, DeviceLost, DeviceTimeout, DeviceError where
    what arrived is not what was sent, InfraError where a local file cannot be read or written.
    """

    def __init__(
        self, server: AdbServer, serial: str, features: frozenset[str], deadline: Deadline
    ) -> None:
        self._link = SyncLink(server, serial, features, deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the stream, which makes the device drop a file that came only in part."""
        self._link.channel.close()

    def push(self, items: Iterable[PushItem], progress: Progress | None = None) -> None:
        """Sends files one behind the other without waiting in between.

        The device makes the folders above them. Each file's size is asked back after it was
        taken. When one is refused, those behind it may have arrived or not. `progress` gets the
        number of bytes sent since the call began.
        """
        Pusher(self._link, progress).run(items)

    def stat(self, remote: str, *, follow: bool = True) -> RemoteStat | None:
        """A file's attributes, None if there is no such file.

        Devices without stat_v2 do not follow a link in the last part of the path. Raises
        DeviceRefused if the device may not look.
        """
        command = f"stat {remote}"
        self._link.channel.queue(self._link.dialect.stat(remote, follow=follow))
        reply = self._link.reply(command)
        if not isinstance(reply, RemoteStat):
            raise self._link.nonsense(reply, command)
        if reply.is_missing:
            return None
        if reply.error:
            raise self._link.refused(os.strerror(reply.error), command)
        return reply

    def pull(self, remote: str, local: Path, max_bytes: int) -> None:
        """Fetches one file, keeping its modification time and permission bits.

        It is written beside `local`, which appears only when it is complete. More than
        `max_bytes` is a DeviceError.
        """
        command = f"pull {remote}"
        found = self.stat(remote)
        sized = is_sized(found, remote, max_bytes, serial=self._link.serial, links=True)
        assert found is not None
        self._link.channel.queue(self._link.dialect.receive(remote))
        with IncomingFile(local) as file:
            while not isinstance(reply := self._link.reply(command), FileEnd):
                if not isinstance(reply, FileData):
                    raise self._link.nonsense(reply, command)
                if file.size + len(reply.content) > max_bytes:
                    raise self._link.error(f"more than the {max_bytes} bytes allowed", command)
                file.write(reply.content)
            if sized and not same_size(found.size, file.size, self._link.dialect.stat_v2):
                raise self._link.error(f"{file.size} bytes came, not {found.size}", command)
            file.keep(found)
