"""The messages of adb's sync service as bytes: requests, stat, directory entries, answers.

As in AOSP's packages/modules/adb/SYNC.TXT and file_sync_protocol.h.
"""

from __future__ import annotations

import os
import struct
from typing import Final

MAX_DATA: Final = 64 * 1024
"""The largest content of one DATA message, in bytes."""

MAX_PATH: Final = 1024
"""The longest path in a request, in bytes; adbd has the same bound."""

MESSAGE: Final = struct.Struct("<4sI")
"""Every request and answer begins with an id and a number."""

SEND_V2: Final = struct.Struct("<4sII")
"""Follows the path of SND2: id, mode, flags."""

RECV_V2: Final = struct.Struct("<4sI")
"""Follows the path of RCV2: id, flags."""

_STAT_V1: Final = struct.Struct("<4sIII")
_STAT_V2: Final = struct.Struct("<4sIQQIIIIQqqq")
_ENTRY_V1: Final = struct.Struct("<4sIIII")
_ENTRY_V2: Final = struct.Struct("<4sIQQIIIIQqqqI")

FOLLOWED_BY_FEATURE: Final[dict[bytes, str]] = {
    b"STA2": "stat_v2",
    b"LST2": "stat_v2",
    b"LIS2": "ls_v2",
    b"SND2": "sendrecv_v2",
    b"RCV2": "sendrecv_v2",
}
"""Which feature of the device a request belongs to; requests not named here always work."""


def fail(text: str) -> bytes:
    """The answer FAIL with its reason."""
    reason = text.encode("utf-8", "replace")
    return MESSAGE.pack(b"FAIL", len(reason)) + reason


def okay() -> bytes:
    """The answer to a file that was taken."""
    return MESSAGE.pack(b"OKAY", 0)


def _low(number: float) -> int:
    return int(number) & 0xFFFFFFFF


def stat_v1(status: os.stat_result | None) -> bytes:
    """The answer to STAT: mode, size and time, cut to 32 bits; zeros for what is not there."""
    if status is None:
        return _STAT_V1.pack(b"STAT", 0, 0, 0)
    return _STAT_V1.pack(b"STAT", status.st_mode, _low(status.st_size), _low(status.st_mtime))


def stat_v2(request: bytes, status: os.stat_result | None, error: int = 0) -> bytes:
    """The answer to STA2 and LST2; `error` is an errno."""
    return _STAT_V2.pack(request, *_v2_fields(status, error))


def entry(v2: bool, name: bytes, status: os.stat_result | None, error: int = 0) -> bytes:
    """One entry of a folder, for LIST or LIS2."""
    if v2:
        return _ENTRY_V2.pack(b"DNT2", *_v2_fields(status, error), len(name)) + name
    if status is None:
        return _ENTRY_V1.pack(b"DENT", 0, 0, 0, len(name)) + name
    numbers = (status.st_mode, _low(status.st_size), _low(status.st_mtime))
    return _ENTRY_V1.pack(b"DENT", *numbers, len(name)) + name


def end_of_entries(v2: bool) -> bytes:
    """What follows the last entry: DONE and zeros, as long as an entry without a name."""
    size = (_ENTRY_V2 if v2 else _ENTRY_V1).size
    return b"DONE" + bytes(size - 4)


def _v2_fields(status: os.stat_result | None, error: int) -> tuple[int, ...]:
    if status is None:
        return (error, *(0 for _ in range(10)))
    return (
        error,
        status.st_dev,
        status.st_ino,
        status.st_mode,
        status.st_nlink,
        status.st_uid,
        status.st_gid,
        status.st_size,
        int(status.st_atime),
        int(status.st_mtime),
        int(status.st_ctime),
    )
