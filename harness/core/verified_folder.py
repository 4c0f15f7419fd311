"""Folders and files that are made or fetched once and used many times: complete or absent.

A verified folder has its files and a manifest, with the size, sha256 and modification time of each
file, the folder's source (`facts`), and other data of its maker (`data`). A file whose size and
time are those in the manifest is assumed to be unchanged; any other is hashed again.

Each fetched file has a note beside it with its sha256. A file gets its name last, when it is
complete and its note is written. A process that is killed earlier leaves at most a part, which the
next one removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import filelock

from harness.core.bounded_json import parse_json
from harness.core.errors import InfraError
from harness.core.files import (
    LocalFile,
    disk_errors,
    open_regular,
    read_json,
    read_note,
    scratch_folder,
    sha256_of,
    write_json,
)
from harness.core.linux_processes import locking_process
from harness.core.paths_inside import NotInsideError, inside, name_problem, open_below, read_inside
from harness.core.state_folders import cache_problem

_log = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"

_FORMAT = 1
_MAX_MANIFEST_BYTES = 16 << 20
_FILE_NAME = re.compile(r"[A-Za-z0-9_+=@,.-]+(?:/[A-Za-z0-9_+=@,.-]+)*")
_LOOK_S: Final = 0.5


class FolderChangedError(Exception):
    """A verified folder exists, but was changed; the text says what differs."""


@dataclass(frozen=True)
class VerifiedFolder:
    """A folder whose files were checked against its manifest."""

    path: Path
    files: Mapping[str, LocalFile]
    data: Mapping[str, Any]


def valid_name(name: str) -> bool:
    """Return whether a file in a set may have a name: no spaces, `..` or shell metacharacters."""
    parts = name.split("/")
    return bool(_FILE_NAME.fullmatch(name)) and not any(
        part in (".", "..") or part.startswith("-") for part in parts
    )


def open_verified(folder: Path, facts: Mapping[str, Any]) -> VerifiedFolder | None:
    """Open a folder that was made from exactly these facts and is unchanged; None if absent.

    Raises FolderChangedError if it exists and differs in any way.
    """
    if (manifest := _read_manifest(folder)) is None:
        return None
    if manifest["facts"] != parse_json(json.dumps(facts)):
        raise FolderChangedError("it was made from other inputs")
    files, touched = {}, False
    for name, entry in manifest["files"].items():
        path = folder.joinpath(*name.split("/"))
        touched |= _check(folder, name, entry)
        files[name] = LocalFile(path, name, entry["size"], entry["sha256"])
    if touched:
        write_json(folder / MANIFEST, manifest)
    return VerifiedFolder(folder, files, manifest["data"])


def find_damage(folder: Path) -> list[str]:
    """Return the changes of a verified folder, reading every byte; none if it does not exist."""
    damages = []
    try:
        manifest = _read_manifest(folder)
    except FolderChangedError as damage:
        return [str(damage)]
    for name, entry in manifest["files"].items() if manifest else ():
        try:
            _check(folder, name, entry | {"mtime_ns": -1})
        except FolderChangedError as damage:
            damages.append(str(damage))
    return damages


def write_manifest(
    folder: Path,
    facts: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    hashes: Mapping[str, str] | None = None,
) -> None:
    """Write the manifest of a complete folder; files with a known hash in `hashes` are not read.

    Raises OSError.
    """
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            status = path.stat()
            entries[name] = {
                "size": status.st_size,
                "mtime_ns": status.st_mtime_ns,
                "sha256": (hashes or {}).get(name) or sha256_of(path),
            }
    write_json(
        folder / MANIFEST, {"format": _FORMAT, "facts": facts, "data": data or {}, "files": entries}
    )


@contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """Create a temporary folder below `parent`, which is removed when the block ends.

    Raises InfraError if that fails, also for an OSError inside the block.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(parent) as folder:
            yield folder
    except OSError as error:
        raise cache_problem(error) from error


def publish(folder: Path, final: Path) -> None:
    """Give a complete folder its final name; an older folder of that name is removed only then.

    Both must be on one file system. Raises OSError.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(final.parent) as old:
        with contextlib.suppress(FileNotFoundError):
            final.rename(old / "old")
        folder.rename(final)


@contextmanager
def locked(lock: Path, doing: str, *, timeout_s: float) -> Iterator[None]:
    """Hold a lock file in the block, while other processes wait; a dead holder's lock is free.

    After half a second of waiting, the holder is logged. Raises InfraError if another process
    holds it for more than `timeout_s`.
    """
    holder = filelock.FileLock(lock)
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            holder.acquire(timeout=min(_LOOK_S, timeout_s))
        except filelock.Timeout:
            _log.warning(f"waiting for {locking_process(lock)}, which is {doing}")
            holder.acquire(timeout=max(0.0, timeout_s - _LOOK_S))
    except filelock.Timeout as error:
        text = f"{locking_process(lock)} has not finished {doing} within {timeout_s:g} s"
        raise InfraError(text) from error
    except OSError as error:
        holder.release()
        raise cache_problem(error) from error
    try:
        yield
    finally:
        holder.release()


def key_of(made_from: object) -> str:
    """Return a short hash of the inputs of a file, which need a complete repr."""
    return hashlib.sha256(repr(made_from).encode()).hexdigest()[:24]


def make_file(file: Path, make: Callable[[Path], Path], *, doing: str, timeout_s: float) -> Path:
    """Return a file that is made once: `make` makes it in an empty folder, and returns its path.

    One process makes it while others wait; `doing` describes that to people. Raises InfraError
    like `locked` and `work_folder`, and the errors of `make`.
    """
    if not file.is_file():
        lock = file.with_name(f"{file.name}.lock")
        with locked(lock, doing, timeout_s=timeout_s), work_folder(file.parent) as work:
            if not file.is_file():
                make(work).replace(file)
    return file


def make_once(
    folder: Path,
    facts: Mapping[str, Any],
    make: Callable[[], None],
    *,
    doing: str,
    timeout_s: float,
) -> VerifiedFolder:
    """Return the verified folder made from `facts`; `make` makes it if it is absent or changed.

    One process makes it while others wait; `doing` describes that to people, as in "unpacking
    x.whl". Raises InfraError like `locked`, and the errors of `make`.
    """
    lock = folder.parent / ".locks" / f"{folder.name}.lock"
    with locked(lock, doing, timeout_s=timeout_s):
        try:
            verified = open_verified(folder, facts)
        except FolderChangedError as damage:
            _log.warning(f"{folder.name} in the cache is damaged ({damage}); {doing} again")
            verified = None
        if verified is None:
            make()
            verified = open_verified(folder, facts)
    if verified is None:
        raise InfraError(f"{folder} was removed while it was in use")
    return verified


def _check(folder: Path, name: str, entry: dict[str, Any]) -> bool:
    """Check a file; return True if it was hashed, since its time differs, and `entry` updated."""
    try:
        with open_below(folder, name) as file:
            status = os.fstat(file.fileno())
            if status.st_size != entry["size"]:
                raise FolderChangedError(f"{name} has {status.st_size} bytes, not {entry['size']}")
            if status.st_mtime_ns == entry["mtime_ns"]:
                return False
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except NotInsideError as error:
        raise FolderChangedError(f"{name} {error.strerror}") from error
    except OSError as error:
        raise FolderChangedError(f"{name}: {error.strerror or error}") from error
    if sha256 != entry["sha256"]:
        raise FolderChangedError(f"{name} has sha256 {sha256}, not {entry['sha256']}")
    entry["mtime_ns"] = status.st_mtime_ns
    return True


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder; None if there is no folder. Raises FolderChangedError."""
    try:
        manifest = parse_json(read_inside(folder, MANIFEST, _MAX_MANIFEST_BYTES))
        if manifest["format"] != _FORMAT:
            raise FolderChangedError(f"{MANIFEST} has an unknown format")
        for name, entry in manifest["files"].items():
            if name_problem(name) is not None:
                raise ValueError(name)
            if not all(isinstance(entry[key], int) for key in ("size", "mtime_ns")):
                raise TypeError(name)
            bytes.fromhex(entry["sha256"])
        if not isinstance(manifest["facts"], dict) or not isinstance(manifest["data"], dict):
            raise TypeError("facts")
    except FileNotFoundError as error:
        if not folder.exists():
            return None
        raise FolderChangedError(f"{MANIFEST} is missing") from error
    except OSError as error:
        raise FolderChangedError(f"{MANIFEST} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderChangedError(f"{MANIFEST} is damaged") from error
    return dict(manifest)


_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class Hashed:
    """The state of a file when it was last read (size in bytes, sha256 in hex)."""

    size: int
    mtime_ns: int
    sha256: str


class HashCache:
    """The hashes of the files below one folder, stored in a file of the cache.

    A file whose size and time are the same is assumed to be unchanged; any other is read again. A
    cache that is lost or damaged costs only time.
    """

    def __init__(self, cache_root: Path, folder: Path) -> None:
        name = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = cache_root / "ledgers" / f"{name}.json"

    def hashed(self, files: Mapping[str, Path]) -> dict[str, Hashed]:
        """Return the size and hash of each file, by the same keys. Raises InfraError."""
        known = self._read()
        hashes = {key: self._look(path, known.get(str(path))) for key, path in files.items()}
        new = {str(path): hashes[key] for key, path in files.items()}
        if any(known.get(path) != entry for path, entry in new.items()):
            self._write(known | new)
        return hashes

    def changed(self, files: Mapping[str, Path]) -> list[str]:
        """Return the problems of files changed since their last use, reading every byte."""
        known = self._read()
        changes = []
        for key, path in files.items():
            entry = known.get(str(path))
            try:
                if entry is not None and sha256_of(path) != entry.sha256:
                    changes.append(f"{key} has changed since it was last used")
            except OSError as error:
                changes.append(f"{key}: {error.strerror or error}")
        return changes

    def _look(self, path: Path, known: Hashed | None) -> Hashed:
        # status and content are those of one file, even if it is replaced meanwhile
        with disk_errors(f"cannot read {path}"), open_regular(path) as file:
            status = os.fstat(file.fileno())
            if known and (known.size, known.mtime_ns) == (status.st_size, status.st_mtime_ns):
                return known
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Hashed(status.st_size, status.st_mtime_ns, digest)

    def _read(self) -> dict[str, Hashed]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            files = read_json(self._path, _MAX_BYTES)["files"]
            entries = {path: Hashed(**entry) for path, entry in files.items()}
            if all(len(bytes.fromhex(entry.sha256)) == 32 for entry in entries.values()):
                return entries
        return {}

    def _write(self, entries: Mapping[str, Hashed]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files = {path: asdict(entry) for path, entry in entries.items()}
            write_json(self._path, {"files": files})
        except OSError as error:
            raise cache_problem(error) from error


Bring = Callable[[Path], Path]
"""A function that fetches a file into an empty folder. Raises InfraError, OSError."""


@dataclass(frozen=True)
class FetchedFile:
    """A file whose hash was checked."""

    path: Path
    sha256: str


class FetchedFiles:
    """Fetched files below `root`, by their names there, each with a note of its sha256.

    One process fetches a file while others wait, `timeout_s` seconds at most.
    """

    def __init__(self, root: Path, *, timeout_s: float) -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._hashes = HashCache(root, root)

    def path(self, name: str) -> Path:
        """Return the path of a file, which may not exist. Raises NotInsideError."""
        return inside(self._root, name)

    def is_cached(self, name: str) -> bool:
        """Return whether the file exists, without hashing it."""
        return self.path(name).is_file()

    def noted_sha256(self, name: str) -> str | None:
        """Return the sha256 in the file's note, even if the file is gone."""
        note = read_note(self.path(f"{name}.json"))
        return None if note is None else str(note["sha256"])

    def damage(self, name: str, expected: str | None = None) -> list[str]:
        """Return the problems of a file, reading every byte; none if it does not exist.

        `expected` is the sha256 that it must have, else that of its note.
        """
        path, expected = self.path(name), expected or self.noted_sha256(name)
        if not path.exists():
            return []
        try:
            sha256 = sha256_of(path)
        except OSError as error:
            return [f"{path.name}: {error.strerror or error}"]
        return [] if sha256 == expected else [_difference(path, sha256, expected)]

    def get(
        self, name: str, bring: Bring, *, title: str, expected: str | None = None
    ) -> FetchedFile:
        """Return the file, fetched if it is absent or damaged.

        `title` names it to people; `expected` is the sha256 that it must have, else that of its
        note. Raises InfraError if it cannot be fetched or has another hash.
        """
        path, lock = self.path(name), self._root / ".locks" / f"{key_of(name)}.lock"
        with locked(lock, f"fetching {title}", timeout_s=self._timeout_s):
            if path.exists():
                sha256 = self._hashes.hashed({name: path})[name].sha256
                if sha256 == (pinned := expected or self.noted_sha256(name)):
                    return FetchedFile(path, sha256)
                problem = _difference(path, sha256, pinned)
                _log.warning(f"the cached file is damaged: {problem}; fetching it again")
            _log.info(f"fetching {title}")
            start = time.monotonic()
            with disk_errors(f"cannot write {title} to the cache"):
                path.parent.mkdir(parents=True, exist_ok=True)
                with scratch_folder(self._root) as folder:
                    fetched = bring(folder)
                    sha256, size = sha256_of(fetched), fetched.stat().st_size
                    if expected not in (None, sha256):
                        note = self.path(f"{name}.json")
                        is_noted = expected == self.noted_sha256(name)
                        raise InfraError(
                            f"the server sent {title} with sha256 {sha256}, expected {expected}"
                            f"{f' as in {note}' if is_noted else ''}; the file was discarded"
                        )
                    write_json(self.path(f"{name}.json"), {"sha256": sha256})
                    fetched.replace(path)
            _log.info(f"fetched {size / 1e6:.1f} MB in {time.monotonic() - start:.1f} s")
            return FetchedFile(path, sha256)


def _difference(path: Path, sha256: str, expected: str | None) -> str:
    return f"{path.name} has sha256 {sha256}, {(expected and f'not {expected}') or 'none recorded'}"
