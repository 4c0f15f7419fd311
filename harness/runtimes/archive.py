"""Takes zip archives (wheels, AARs) apart without trusting a byte of them."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.errors import InfraError
from harness.files.verified_folder import (
    VerifiedFolder,
    made_once,
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
_LOCAL_HEADER_BYTES = 30
_MAX_NAME_BYTES = 1024
_MAX_PART_BYTES = 255
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1

# What reading a damaged zip raises, by experiment with fuzzed ones (tests/unit/runtimes).
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
    """Bounds of what is unpacked (bytes); the libraries of QNN 2.51 need a tenth of each."""

    members: int = 10_000
    directory_bytes: int = 8 << 20
    archive_bytes: int = 2 << 30
    total_bytes: int = 4 << 30
    # Deflate packs zeros 1032 : 1; libraries 2 to 5 : 1, texts up to 20 : 1.
    ratio: int = 250


def unpack(
    archive: Path,
    folder: Path,
    wanted: Callable[[str], bool],
    limits: ArchiveLimits = ArchiveLimits(),
) -> dict[str, str]:
    """Writes the wanted files of a zip archive below `folder`, which must be new and empty.

    Their names there, and the sha256 of each. The whole archive is judged before the first byte is
    written, whatever is wanted of it. Refused: absolute names, `..`, backslashes and control
    characters, links and devices, duplicates, names that are file and folder at once, encryption,
    methods other than deflate, zip64, members that overlap, and what exceeds `limits`. Raises
    InfraError saying what is wrong; what was written until then is the caller's to remove.
    """
    with _open(archive, limits) as opened:
        return {
            member.filename: _write(opened, member, folder.joinpath(*member.filename.split("/")))
            for member in _judged(opened, limits)
            if not member.is_dir() and wanted(member.filename)
        }


def unpacked_once(
    archive: Path,
    folder: Path,
    facts: Mapping[str, Any],
    wanted: Callable[[str], bool],
    data_of: Callable[[Path, Collection[str]], Mapping[str, Any]],
    *,
    what: str,
) -> VerifiedFolder:
    """The wanted files of an archive as a verified folder: unpacked once, anew where it changed.

    `facts` tell what it is made from; `data_of` gets the new folder and what is in it, answers what
    to keep beside that, and may refuse by an InfraError. Raises InfraError as `unpack` does.
    """

    def make() -> None:
        with work_folder(folder.parent) as work:
            unfinished = work / "unpacked"
            unfinished.mkdir()
            files = unpack(archive, unfinished, wanted)
            write_manifest(unfinished, facts, data_of(unfinished, files), files)
            publish(unfinished, folder)

    return made_once(folder, facts, make, what=what, timeout_s=_TIMEOUT_S)


def names_of(archive: Path, limits: ArchiveLimits = ArchiveLimits()) -> list[str]:
    """The names of the files of an archive, judged as in `unpack`. Raises InfraError."""
    with _open(archive, limits) as opened:
        return [member.filename for member in _judged(opened, limits) if not member.is_dir()]


@contextmanager
def _open(archive: Path, limits: ArchiveLimits) -> Iterator[zipfile.ZipFile]:
    try:
        with archive.open("rb") as file:
            _bound_directory(file, limits)
            with zipfile.ZipFile(file) as opened:
                yield opened
    except _DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise InfraError(f"{archive.name} cannot be unpacked: {reason}") from error
    except OSError as error:
        raise InfraError(f"{archive.name} cannot be unpacked: {error}") from error


def _bound_directory(file: IO[bytes], limits: ArchiveLimits) -> None:
    """Refuses an archive whose directory would be large to read, before zipfile reads it."""
    size = file.seek(0, os.SEEK_END)
    if size > limits.archive_bytes:
        raise ValueError(f"{size} bytes")
    tail_bytes = min(size, _ZIP64_LOCATOR_BYTES + _END_BYTES + 0xFFFF)
    file.seek(size - tail_bytes)
    tail = file.read(tail_bytes)
    # The same choice as zipfile makes: an end without comment first, else the last that is found.
    at = len(tail) - _END_BYTES
    if at < 0 or tail[at : at + 4] != _END_MAGIC or tail[-2:] != b"\0\0":
        at = tail.rfind(_END_MAGIC)
    if at < 0 or len(tail) - at < _END_BYTES:
        raise zipfile.BadZipFile("it is not a zip archive")
    if tail[max(0, at - _ZIP64_LOCATOR_BYTES) : at][:4] == _ZIP64_LOCATOR_MAGIC:
        raise ValueError("it is a zip64 archive, which nothing of this size needs")
    entries, directory_bytes = struct.unpack_from("<HI", tail, at + 10)
    if entries > limits.members or directory_bytes > limits.directory_bytes:
        raise ValueError(f"{entries} members in a directory of {directory_bytes} bytes")
    file.seek(0)


def _judged(opened: zipfile.ZipFile, limits: ArchiveLimits) -> list[zipfile.ZipInfo]:
    members = opened.infolist()
    if len(members) > limits.members:
        raise ValueError(f"{len(members)} members, at most {limits.members} are accepted")
    total = 0
    for member in members:
        total += member.file_size
        if problem := _problem_of(member, limits):
            raise ValueError(f"{member.orig_filename[:120]!r} {problem}")
    if total > limits.total_bytes:
        raise ValueError(f"{total} bytes unpacked, at most {limits.total_bytes} are accepted")
    _refuse_collisions(members)
    _refuse_overlaps(members, opened.start_dir)
    return members


def _problem_of(member: zipfile.ZipInfo, limits: ArchiveLimits) -> str | None:
    if problem := _name_problem(member.orig_filename):
        return problem
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
        return "is a folder by its mode and a file by its name"
    if member.file_size > limits.ratio * max(member.compress_size, 4096):
        return f"unpacks {member.compress_size} bytes to {member.file_size}"
    return None


def _name_problem(name: str) -> str | None:
    if len(name.encode("utf-8", "replace")) > _MAX_NAME_BYTES:
        return "has too long a name"
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or "\\" in name or (len(parts[0]) == 2 and parts[0][1] == ":"):
        return "has an absolute name or one of another system"
    if any(part in ("", ".", "..") for part in parts):
        return "has a name that leads elsewhere"
    if any(len(part.encode("utf-8", "replace")) > _MAX_PART_BYTES for part in parts):
        return "has too long a name"
    if any(unicodedata.category(character).startswith("C") for character in name):
        return "has control characters in its name"
    return None


def _refuse_collisions(members: list[zipfile.ZipInfo]) -> None:
    files: set[str] = set()
    folders: set[str] = set()
    for member in members:
        name = unicodedata.normalize("NFC", member.filename.removesuffix("/"))
        if name in files:
            raise ValueError(f"{name[:120]!r} is there twice")
        (folders if member.is_dir() else files).add(name)
        parts = name.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    if both := files & folders:
        raise ValueError(f"{min(both)[:120]!r} is a file and a folder")


def _refuse_overlaps(members: list[zipfile.ZipInfo], directory_at: int) -> None:
    """Members that share packed bytes make small archives unpack to petabytes."""
    end = 0
    for member in sorted(members, key=lambda one: one.header_offset):
        if member.header_offset < end:
            raise ValueError(f"{member.filename[:120]!r} overlaps another member")
        end = member.header_offset + _LOCAL_HEADER_BYTES + member.compress_size
    if end > directory_at:
        raise ValueError("a member reaches into the directory")


def _write(opened: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file, opened.open(member) as source:
        while chunk := source.read(_CHUNK_BYTES):
            size += len(chunk)
            digest.update(chunk)
            file.write(chunk)
    if size != member.file_size:
        raise EOFError(f"{member.filename[:120]!r} ends after {size} of {member.file_size} bytes")
    return digest.hexdigest()
