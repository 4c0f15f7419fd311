"""Maven repositories as files: a folder on this computer, or a URL with a cache in front of it."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from harness.errors import InfraError
from harness.runtimes.download import Bounds, NotThere, discard, download
from harness.runtimes.maven_files import (
    CHECKSUMS,
    METADATA,
    Coordinates,
    checksum,
    metadata_versions,
)
from harness.runtimes.notices import Say
from harness.runtimes.sealed import locked, read_note, sha256_of, write_json

TEXT_BOUNDS: Final = Bounds(max_bytes=4 << 20, timeout_s=60.0)
AAR_BOUNDS: Final = Bounds(max_bytes=1 << 30, timeout_s=1800.0)
"""qnn-runtime 2.49.0 has 70 MB; half an hour is enough for that over 0.5 Mbit/s."""

_CHECKSUM_BOUNDS: Final = Bounds(max_bytes=4096, timeout_s=30.0)


class Repository(Protocol):
    """Where artifacts are; every method raises InfraError."""

    def versions(self, artifact: Coordinates) -> list[str]:
        """The versions there are, in no order."""

    def file(self, name: str) -> Path:
        """A file of the repository on this computer, checked. Raises NotThere."""

    def is_cached(self, name: str) -> bool:
        """Whether `file` needs no network."""

    def damage(self, name: str) -> list[str]:
        """What is wrong with a file that was fetched, every byte read."""


class FolderRepository:
    """A repository on this computer, such as ~/.m2/repository or a mirror."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def versions(self, artifact: Coordinates) -> list[str]:
        """See `Repository`: what is really there, whatever a list says."""
        folder = self._root / artifact.folder
        try:
            with os.scandir(folder) as found:
                names = [entry.name for entry in found if entry.is_dir()]
        except OSError as error:
            raise NotThere(f"{folder}: {error.strerror}") from error
        return [name for name in names if (self._root / artifact.at(name).file("aar")).is_file()]

    def file(self, name: str) -> Path:
        """See `Repository`; a checksum beside it has to be right."""
        path = self._root / name
        if not path.is_file():
            raise NotThere(f"{path} is not there")
        if damage := self.damage(name):
            raise InfraError(damage[0])
        return path

    def is_cached(self, name: str) -> bool:
        """See `Repository`."""
        return True

    def damage(self, name: str) -> list[str]:
        """See `Repository`."""
        path = self._root / name
        for kind in CHECKSUMS:
            try:
                said = checksum(path.with_name(f"{path.name}.{kind}").read_text("ascii"), kind)
                found = _digest(path, kind)
            except (OSError, ValueError):
                continue
            if said is not None:
                wrong = f"{path} has {kind} {found}, and {said} is written beside it"
                return [] if said == found else [wrong]
        return []


class HttpRepository:
    """A repository behind a URL; what was fetched is kept below `cache_root` and checked there."""

    def __init__(
        self,
        url: str,
        cache_root: Path,
        *,
        notify: Say,
        warn: Say,
        bounds: Bounds = AAR_BOUNDS,
    ) -> None:
        self._url = url.rstrip("/")
        self._root = cache_root / "maven" / hashlib.sha256(self._url.encode()).hexdigest()[:16]
        self._notify = notify
        self._warn = warn
        self._bounds = bounds
        self._versions: dict[str, list[str]] = {}
        self._checked: dict[str, Path] = {}

    def versions(self, artifact: Coordinates) -> list[str]:
        """See `Repository`; without a network, those known from the last time."""
        name = f"{artifact.folder}/{METADATA}"
        if name not in self._versions:
            kept = self._root / name
            try:
                content = self._fetched(name, TEXT_BOUNDS).read_bytes()
            except NotThere:
                raise
            except InfraError as error:
                if not kept.is_file():
                    raise
                self._warn(f"{error}; taking the list of versions of the last time")
                content = kept.read_bytes()
            try:
                self._versions[name] = metadata_versions(content)
            except ValueError as error:
                raise InfraError(f"{self._url}/{name}: {error}") from error
        return self._versions[name]

    def file(self, name: str) -> Path:
        """See `Repository`; hashed once per process."""
        if name not in self._checked:
            path = self._root / name
            damage = self.damage(name)
            if damage or not path.exists():
                path = self._fetched(name, self._bounds)
                if damage:
                    self._warn(f"{damage[0]}; it was fetched again")
            self._checked[name] = path
        return self._checked[name]

    def is_cached(self, name: str) -> bool:
        """See `Repository`."""
        return (self._root / name).is_file() and self._note(name) is not None

    def damage(self, name: str) -> list[str]:
        """See `Repository`; nothing for a file that is not there."""
        path = self._root / name
        if not path.exists():
            return []
        said = (self._note(name) or {}).get("sha256")
        try:
            found = sha256_of(path)
        except OSError as error:
            return [f"cached {path.name}: {error.strerror or error}"]
        wrong = f"cached {path.name} has sha256 {found}, expected {said or 'one that is lost'}"
        return [] if said == found else [wrong]

    def _fetched(self, name: str, bounds: Bounds) -> Path:
        """Fetches a file and gives it its name once it is whole and checked, not earlier."""
        path = self._root / name
        incoming = self._root / ".incoming" / hashlib.sha256(name.encode()).hexdigest()[:32]
        lock = self._root / ".locks" / f"{incoming.name}.lock"
        what = f"fetching {path.name}"
        with locked(lock, what, timeout_s=bounds.timeout_s, notify=self._notify):
            self._notify(what)
            part = download(f"{self._url}/{name}", incoming, bounds, notify=self._notify)
            try:
                trust = self._verify(name, part)
                path.parent.mkdir(parents=True, exist_ok=True)
                note = {
                    "sha256": sha256_of(part),
                    "size": part.stat().st_size,
                    "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
                    "trust": trust,
                }
                write_json(self._note_path(name), note)
                part.replace(path)
            except OSError as error:
                raise InfraError(f"{path.name} cannot be kept in the cache: {error}") from error
            finally:
                # whole or wrong, it is not to be continued
                discard(incoming)
        return path

    def _verify(self, name: str, part: Path) -> str:
        """Compares with the checksum that the repository has beside the file."""
        for kind in CHECKSUMS:
            folder = part.parent / kind
            try:
                beside = download(f"{self._url}/{name}.{kind}", folder, _CHECKSUM_BOUNDS)
            except NotThere:
                continue
            said = checksum(beside.read_text("ascii", "replace"), kind)
            found = _digest(part, kind)
            if said is None:
                raise InfraError(f"{self._url}/{name}.{kind} holds no {kind}")
            if said != found:
                raise InfraError(
                    f"{self._url}/{name} has {kind} {found}, and {said} is written beside it; it "
                    "was not kept"
                )
            return kind
        return "first use"

    def _note_path(self, name: str) -> Path:
        return self._root / f"{name}.qnn-harness.json"

    def _note(self, name: str) -> dict[str, Any] | None:
        return read_note(self._note_path(name))


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()
