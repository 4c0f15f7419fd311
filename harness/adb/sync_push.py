"""Sending many files over one stream: none waits for the answer to the one before."""

from __future__ import annotations

import io
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.adb.sync_link import SyncLink, local_faults, valid_path
from harness.adb.sync_protocol import CHUNK_BYTES, Okay, RemoteStat, data_header, done
from harness.errors import InfraError

Progress = Callable[[int], None]

_READ_BYTES = 4 * CHUNK_BYTES
_MAX_UNANSWERED = 256


@dataclass(frozen=True)
class PushItem:
    """One file to send: content or a local path, where to, permission bits.

    The modification time is the local file's, or now for content from memory. `checked`: whether
    its size is asked back; not for one that may be gone again by then.
    """

    source: Path | bytes
    remote: str
    mode: int = 0o644
    checked: bool = True


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
        with valid_path(command):
            begin = link.dialect.send(item.remote, item.mode)
            check = link.dialect.stat(item.remote, follow=False) if item.checked else b""
        sent = _Sent(command, 0, item.checked)
        if isinstance(item.source, bytes):
            link.queue(begin)
            # until all of it is queued, an answer can only be a refusal, and it is for this file
            self._unanswered.append(sent)
            self._queue_content(sent, memoryview(item.source))
            link.queue(done(int(time.time())), check)
            return
        source, status = _open_regular(item.source)
        with source:
            link.queue(begin)
            self._unanswered.append(sent)
            while sent.size < status.st_size:
                with local_faults(item.source):
                    block = source.read(min(_READ_BYTES, status.st_size - sent.size))
                if not block:
                    raise InfraError(f"{item.source} on this host became shorter meanwhile")
                self._queue_content(sent, memoryview(block))
        link.queue(done(int(status.st_mtime)), check)

    def _queue_content(self, sent: _Sent, content: memoryview) -> None:
        sent.size += len(content)
        for start in range(0, len(content), CHUNK_BYTES):
            chunk = content[start : start + CHUNK_BYTES]
            self._link.queue(data_header(len(chunk)), chunk)
            if self._link.must_send:
                self._link.exchange(self._unanswered[0].command)
                self._collect()
                self._report()
        self._handed_over += len(content)

    def _collect(self) -> None:
        while self._unanswered:
            reply = self._link.arrived(self._unanswered[0].command)
            if reply is None:
                return
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
            self._progress(max(0, self._handed_over - self._link.queued_bytes))


def same_size(told: int, true: int, exact: bool) -> bool:
    """Whether a size that a device tells fits; the first protocol version tells 32 bits of it."""
    return told == true if exact else told == true % (1 << 32)


def _open_regular(path: Path) -> tuple[io.FileIO, os.stat_result]:
    with local_faults(path):
        # a FIFO in place of a file must not make us wait for its writer
        source = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        status = os.fstat(source.fileno())
        if stat.S_ISREG(status.st_mode):
            return source, status
        source.close()
    raise InfraError(f"{path} on this host: not a regular file")
