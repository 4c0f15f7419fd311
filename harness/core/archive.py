"""Unpacking of zip archives (wheels, AARs, DLCs, SDKs) that are not trusted.

Nothing else in the harness unpacks archives. Only deflate is accepted: it is unpacked in pieces,
while bzip2 expands 428 bytes to 850 MB at once.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from harness.core.errors import InfraError
from harness.core.outgoing_text import counted
from harness.core.paths_inside import create_inside, name_problem
from harness.core.state_folders import require_room
from harness.core.verified_folder import (
    MANIFEST,
    VerifiedFolder,
    make_once,
    publish,
    work_folder,
    write_manifest,
)

_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 300.0
_END_BYTES = 22
_END_MAGIC = b"PK\x05\x06"
_ZIP64_LOCATOR_BYTES = 20
_ZIP64_LOCATOR_MAGIC = b"PK\x06\x07"
# after the versions: members on this disk and in all, size and offset of the directory
_ZIP64_END: Final = struct.Struct("<4s28xQQ8x")
_ZIP64_END_MAGIC = b"PK\x06\x06"
_MISPLACED_END = "its zip64 end record is not where its locator points"
_LOCAL_HEADER_BYTES = 30
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1

# Exceptions from reading damaged archives, found with fuzzed ones (tests/unit/runtimes).
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    IndexError,
)


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits for unpacking (bytes); the libraries of QNN 2.51 need a tenth of each.

    A directory of 2 MiB takes 20 MB of memory. `zip64` allows archives beyond 4 GB. Members that
    are not `judged`, by their names, may be anything and are not unpacked.
    """

    members: int = 10_000
    directory_bytes: int = 2 << 20
    archive_bytes: int = 2 << 30
    total_bytes: int = 4 << 30
    # Deflate packs zeros 1032 : 1; libraries 2 to 5 : 1, texts up to 20 : 1.
    ratio: int = 250
    zip64: bool = False
    judged: Callable[[str], bool] = field(default=lambda _: True, repr=False)


class ArchiveError(Exception):
    """An archive is damaged or not accepted; the text says why."""


def unpack(
    archive: Path,
    folder: Path,
    is_wanted: Callable[[str], bool],
    limits: ArchiveLimits = ArchiveLimits(),
) -> dict[str, str]:
    """Write the wanted files of a zip archive below `folder`, which must be new and empty.

    Return {name: sha256}. The whole archive is checked before the first byte is written, including
    members that are not wanted. Refused: names with a `name_problem`, links and devices,
    duplicates, names that are file and folder at once, encryption, methods other than deflate,
    zip64, overlapping members, more than `limits`, and more than fits on the disk. Raises
    InfraError with the reason; the caller removes files written until then.
    """
    with _open(archive, limits) as opened:
        files = [member for member in _named(opened, limits) if not member.is_dir()]
        wanted = [member for member in files if is_wanted(member.filename)]
        size = sum(member.file_size for member in wanted)
        require_room(folder, size, f"unpacking {archive.name}")
        return {member.filename: _write(opened, member, folder) for member in wanted}


def unpack_once(
    archive: Path,
    folder: Path,
    facts: Mapping[str, Any],
    is_wanted: Callable[[str], bool],
    data_of: Callable[[Path, Collection[str]], Mapping[str, Any]],
    *,
    title: str,
    limits: ArchiveLimits = ArchiveLimits(),
) -> VerifiedFolder:
    """Return the wanted files of an archive as a verified folder, unpacked if absent or changed.

    `facts` identify the folder's source. `data_of` gets the new folder and the names in it, and
    returns the manifest's `data`, or raises InfraError. Raises InfraError as `unpack` does.
    """

    def make() -> None:
        with work_folder(folder.parent) as work:
            unfinished = work / "unpacked"
            unfinished.mkdir()
            files = unpack(archive, unfinished, is_wanted, limits)
            if any(name.split("/")[0] == MANIFEST for name in files):
                raise InfraError(f"{archive.name} contains {MANIFEST}, a reserved name")
            write_manifest(unfinished, facts, data_of(unfinished, files), files)
            publish(unfinished, folder)

    return make_once(folder, facts, make, doing=f"unpacking {title}", timeout_s=_TIMEOUT_S)


def names_of(archive: Path, limits: ArchiveLimits = ArchiveLimits()) -> list[str]:
    """Return the names of an archive's files, judged as in `unpack`. Raises InfraError."""
    with _open(archive, limits) as opened:
        _named(opened, limits)
        return [member.filename for member in opened.infolist() if not member.is_dir()]


@contextmanager
def open_archive(file: IO[bytes], limits: ArchiveLimits) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose members lie within it and fit in bounded memory; names are not checked.

    Raises ArchiveError, also for damage found in the block, and OSError.
    """
    try:
        _bound_directory(file, limits)
        with zipfile.ZipFile(file) as opened:
            _judge(opened, limits)
            yield opened
    except _DAMAGE as error:
        raise ArchiveError(str(error) or type(error).__name__) from error


@contextmanager
def _open(archive: Path, limits: ArchiveLimits) -> Iterator[zipfile.ZipFile]:
    try:
        with archive.open("rb") as file, open_archive(file, limits) as opened:
            yield opened
    except (ArchiveError, OSError) as error:
        raise InfraError(f"{archive.name} cannot be unpacked: {error}") from error


def _bound_directory(file: IO[bytes], limits: ArchiveLimits) -> None:
    """Refuse an archive whose directory is too large, before zipfile reads it."""
    size = file.seek(0, os.SEEK_END)
    if size > limits.archive_bytes:
        raise ValueError(f"{size} bytes")
    tail_bytes = min(size, _ZIP64_LOCATOR_BYTES + _END_BYTES + 0xFFFF)
    file.seek(size - tail_bytes)
    tail = file.read(tail_bytes)
    # the same choice as zipfile's: an end without a comment first, else the last one found
    position = len(tail) - _END_BYTES
    if position < 0 or tail[position : position + 4] != _END_MAGIC or tail[-2:] != b"\0\0":
        position = tail.rfind(_END_MAGIC)
    if position < 0 or len(tail) - position < _END_BYTES:
        raise zipfile.BadZipFile("it is not a zip archive, or it is truncated")
    entries, directory_bytes = struct.unpack_from("<HI", tail, position + 10)
    locator = tail[max(0, position - _ZIP64_LOCATOR_BYTES) : position]
    if locator[:4] == _ZIP64_LOCATOR_MAGIC:
        if not limits.zip64:
            raise ValueError("it is a zip64 archive, which is not needed for this size")
        entries, directory_bytes = _zip64_end(
            file, locator, size - len(tail) + position - len(locator)
        )
    if entries > limits.members or directory_bytes > limits.directory_bytes:
        raise ValueError(f"it has too many members: {entries}, listed in {directory_bytes} bytes")
    file.seek(0)


def _zip64_end(file: IO[bytes], locator: bytes, locator_at: int) -> tuple[int, int]:
    """Return the number of members and the directory's size of an archive beyond 4 GB.

    Some versions of zipfile look right before the locator, others where it points to: both must be
    the same position.
    """
    position = locator_at - _ZIP64_END.size
    if position < 0 or struct.unpack_from("<Q", locator, 8) != (position,):
        raise ValueError(_MISPLACED_END)
    file.seek(position)
    magic, entries, directory_bytes = _ZIP64_END.unpack(file.read(_ZIP64_END.size))
    if magic != _ZIP64_END_MAGIC:
        raise ValueError(_MISPLACED_END)
    return entries, directory_bytes


def _judge(opened: zipfile.ZipFile, limits: ArchiveLimits) -> None:
    members = opened.infolist()
    if len(members) > limits.members:
        raise ValueError(
            f"{counted(len(members), 'member')}, at most {limits.members} are accepted"
        )
    total = 0
    for member in members:
        if not limits.judged(member.filename):
            continue
        total += member.file_size
        if problem := _problem_of(member, limits):
            raise ValueError(f"{member.orig_filename[:120]!r} {problem}")
    if total > limits.total_bytes:
        raise ValueError(f"{total} bytes unpacked, at most {limits.total_bytes} are accepted")
    _refuse_overlaps(members, opened.start_dir)


def _named(opened: zipfile.ZipFile, limits: ArchiveLimits) -> list[zipfile.ZipInfo]:
    """Return the judged members, after checking that each name is that of a file in a folder."""
    members = [member for member in opened.infolist() if limits.judged(member.filename)]
    for member in members:
        if problem := name_problem(member.orig_filename.removesuffix("/")):
            raise ValueError(f"{member.orig_filename[:120]!r} {problem}")
    _refuse_collisions(members)
    return members


def _problem_of(member: zipfile.ZipInfo, limits: ArchiveLimits) -> str | None:
    if member.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if member.compress_type not in _METHODS:
        return f"is packed with method {member.compress_type}, only deflate is accepted"
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or device"
    if member.is_dir() and member.file_size:
        return "is a folder with content"
    if kind == stat.S_IFDIR and not member.is_dir():
        return "has the mode of a folder, but the name of a file"
    if member.file_size > limits.ratio * max(member.compress_size, 4096):
        return f"expands {member.compress_size} bytes to {member.file_size}, more than accepted"
    return None


def _refuse_collisions(members: list[zipfile.ZipInfo]) -> None:
    files: set[str] = set()
    folders: set[str] = set()
    for member in members:
        name = unicodedata.normalize("NFC", member.filename.removesuffix("/"))
        if name in files:
            raise ValueError(f"{name[:120]!r} is contained twice")
        (folders if member.is_dir() else files).add(name)
        parts = name.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if both := files & folders:
        raise ValueError(f"{min(both)[:120]!r} is both a file and a folder")


def _refuse_overlaps(members: list[zipfile.ZipInfo], directory_at: int) -> None:
    """Raise ValueError for members that share bytes: small archives could unpack to petabytes."""
    end = 0
    for member in sorted(members, key=lambda info: info.header_offset):
        if member.header_offset < end:
            raise ValueError(f"{member.filename[:120]!r} overlaps another member")
        end = member.header_offset + _LOCAL_HEADER_BYTES + member.compress_size
    if end > directory_at:
        raise ValueError("a member overlaps the central directory")


def _write(opened: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> str:
    digest, size = hashlib.sha256(), 0
    with create_inside(folder, member.filename) as file, opened.open(member) as source:
        while chunk := source.read(_CHUNK_BYTES):
            size += len(chunk)
            digest.update(chunk)
            file.write(chunk)
    if size != member.file_size:
        raise EOFError(f"{member.filename[:120]!r} ends after {size} of {member.file_size} bytes")
    return digest.hexdigest()
