"""Files to and from a device over one stream: verified, and nothing half-done is kept."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from harness.adb.deadline import Deadline
from harness.adb.server import AdbServer
from harness.adb.sync_link import SyncLink, local_faults, valid_path
from harness.adb.sync_protocol import Data, Done, RemoteEntry, RemoteStat
from harness.adb.sync_push import Progress, Pusher, PushItem, same_size

__all__ = ["Progress", "PushItem", "RemoteEntry", "RemoteStat", "SyncStream"]

_MAX_ENTRIES = 100_000
_PSEUDO_FOLDERS = ("/proc/", "/sys/", "/dev/")  # sizes there say nothing about content


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
        """Closes the stream."""
        self._link.close()

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
        with valid_path(command):
            self._link.queue(self._link.dialect.stat(remote, follow=follow))
        reply = self._link.reply(command)
        if not isinstance(reply, RemoteStat):
            raise self._link.nonsense(reply, command)
        if reply.is_missing:
            return None
        if reply.error:
            raise self._link.refused(os.strerror(reply.error), command)
        return reply

    def list(self, remote: str) -> list[RemoteEntry]:
        """The names in a folder, sorted, without `.` and `..`.

        Raises DeviceRefused if it is missing, no folder, or may not be read: adb itself answers
        all of these with an empty list.
        """
        command = f"list {remote}"
        found = self.stat(remote)
        if found is None:
            raise self._link.refused("No such file or directory", command)
        # only a device that cannot follow links answers with a link; it may well be to a folder
        if not (found.is_dir or stat.S_ISLNK(found.mode)):
            raise self._link.refused("Not a directory", command)
        entries = []
        names = 0
        with valid_path(command):
            self._link.queue(self._link.dialect.list(remote))
        with self._link.listing():
            while not isinstance(reply := self._link.reply(command), Done):
                if not isinstance(reply, RemoteEntry):
                    raise self._link.nonsense(reply, command)
                names += 1
                if names > _MAX_ENTRIES:
                    raise self._link.error(f"more than {_MAX_ENTRIES} names", command)
                if reply.name in (".", ".."):
                    continue
                if not reply.name or "/" in reply.name or "\0" in reply.name:
                    raise self._link.error(f"an impossible name: {reply.name!r}", command)
                entries.append(reply)
        if names == 0:
            raise self._link.refused(
                "not a folder that can be read: not even `.` is in it", command
            )
        return sorted(entries, key=lambda entry: entry.name)

    def pull(self, remote: str, local: Path, max_bytes: int) -> None:
        """Fetches one file, keeping its modification time and permission bits.

        It is written beside `local`, which appears only when it is complete. More than
        `max_bytes` is a DeviceError.
        """
        command = f"pull {remote}"
        found = self.stat(remote)
        if found is None:
            raise self._link.refused("No such file or directory", command)
        # only a device that cannot follow links answers with a link here
        if not (found.is_file or stat.S_ISLNK(found.mode)):
            raise self._link.refused("not a regular file", command)
        sized = found.is_file and not remote.startswith(_PSEUDO_FOLDERS)
        if sized and found.size > max_bytes:
            raise self._link.error(
                f"{found.size} bytes, more than the {max_bytes} allowed", command
            )
        with valid_path(command):
            self._link.queue(self._link.dialect.receive(remote))
        partial = local.with_name(f".pull-{secrets.token_hex(8)}.partial")
        try:
            size = self._write(partial, command, max_bytes)
            if sized and not same_size(found.size, size, self._link.dialect.stat_v2):
                raise self._link.error(f"{size} bytes came, not {found.size}", command)
            with local_faults(local):
                if found.is_file:
                    partial.chmod(stat.S_IMODE(found.mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
                    os.utime(partial, (found.mtime_s, found.mtime_s))
                partial.replace(local)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def _write(self, partial: Path, command: str, max_bytes: int) -> int:
        size = 0
        with local_faults(partial):
            target = partial.open("xb", buffering=0)
        with target:
            while not isinstance(reply := self._link.reply(command), Done):
                if not isinstance(reply, Data):
                    raise self._link.nonsense(reply, command)
                size += len(reply.content)
                if size > max_bytes:
                    raise self._link.error(f"more than the {max_bytes} bytes allowed", command)
                with local_faults(partial):
                    target.write(reply.content)
        return size
