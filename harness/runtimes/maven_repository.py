"""Maven repositories, as a folder or behind a URL: coordinates, versions, verified files."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from harness.core.errors import ConfigError, InfraError
from harness.core.outgoing_text import counted, without_secrets
from harness.core.paths_inside import inside, name_problem, stays_inside
from harness.core.verified_folder import FetchedFiles, work_folder
from harness.runtimes.download import Bounds, NotOnServer, download

_log = logging.getLogger(__name__)

QNN_RUNTIME: Final = "com.qualcomm.qti:qnn-runtime"
METADATA: Final = "maven-metadata.xml"

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_MAX_VERSIONS = 1000

TEXT_BOUNDS: Final = Bounds(max_bytes=4 << 20, timeout_s=60.0)
AAR_BOUNDS: Final = Bounds(max_bytes=1 << 30, timeout_s=1800.0)
"""qnn-runtime 2.49.0 has 70 MB; half an hour is enough for that over 0.5 Mbit/s."""

_CHECKSUM_BOUNDS: Final = Bounds(max_bytes=4096, timeout_s=30.0)


@dataclass(frozen=True)
class Coordinates:
    """group:artifact, or group:artifact:version for one version of it."""

    group: str
    artifact: str
    version: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse com.qualcomm.qti:qnn-runtime:2.49.0. Raises ConfigError for anything else."""
        parts = text.split(":")
        if len(parts) not in (2, 3) or not all(_is_part(part) for part in parts):
            raise ConfigError(
                f"{text[:120]!r} is not group:artifact or group:artifact:version, "
                f"as in {QNN_RUNTIME}:2.49.0"
            )
        return cls(*parts)

    def with_version(self, version: str) -> Self:
        return replace(self, version=version)

    @property
    def folder(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}"

    def aar(self) -> str:
        return f"{self.folder}/{self.version}/{self.artifact}-{self.version}.aar"

    def __str__(self) -> str:
        name = f"{self.group}:{self.artifact}"
        return f"{name}:{self.version}" if self.version else name


def metadata_versions(content: bytes) -> list[str]:
    """Return the versions that a maven-metadata.xml lists. Raises ValueError."""
    from xml.etree import ElementTree

    # Maven's files declare no document type, which could declare entities.
    if b"<!" in content.replace(b"<!--", b""):
        raise ValueError("it declares a document type")
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, LookupError, RecursionError) as error:
        raise ValueError(f"it is not XML: {error}") from error
    listed = [(e.text or "").strip() for e in root.iterfind("./versioning/versions/version")]
    if len(listed) > _MAX_VERSIONS:
        raise ValueError(f"it lists {counted(len(listed), 'version')}")
    return [version for version in dict.fromkeys(listed) if _is_part(version)]


def _is_part(text: str) -> bool:
    # a group's dots are folders
    return _PART.fullmatch(text) is not None and name_problem(text.replace(".", "/")) is None


class Repository:
    """A folder such as ~/.m2/repository, or a repository behind a URL.

    Files fetched from a URL are kept below `cache_root` and verified; files of a folder stay where
    they are. Every method raises InfraError.
    """

    def __init__(self, location: str | Path, cache_root: Path) -> None:
        self._folder = location if isinstance(location, Path) else None
        self._url = str(location).rstrip("/")
        key = hashlib.sha256(without_secrets(self._url).encode()).hexdigest()[:16]
        self._files = FetchedFiles(cache_root / "maven" / key, timeout_s=AAR_BOUNDS.timeout_s)

    def versions(self, artifact: Coordinates) -> list[str]:
        """Return the versions of an artifact, unordered; without a network, those of the last time.

        Of a folder, the versions that are there, not those of its list. Raises NotOnServer.
        """
        if self._folder is not None:
            return self._versions_in(self._folder, artifact)
        name = f"{artifact.folder}/{METADATA}"
        path = self._files.path(name)
        with work_folder(path.parent) as work:
            try:
                download(f"{self._url}/{name}", work / METADATA, TEXT_BOUNDS)
                (work / METADATA).replace(path)
            except NotOnServer:
                raise
            except InfraError as error:
                if not path.is_file():
                    raise
                _log.warning(f"{error}; using the cached list of versions")
            try:
                return metadata_versions(path.read_bytes())
            except ValueError as error:
                raise InfraError(f"{self._url}/{name}: {error}") from error

    def _versions_in(self, root: Path, artifact: Coordinates) -> list[str]:
        try:
            names = filter(_is_part, os.listdir(root / artifact.folder))
        except OSError as error:
            raise NotOnServer(f"{root / artifact.folder}: {error.strerror}") from error
        aars = {name: artifact.with_version(name).aar() for name in names}
        return [name for name, aar in aars.items() if inside(root, aar).is_file()]

    def is_cached(self, name: str) -> bool:
        return self._folder is not None or self._files.is_cached(name)

    def damage(self, name: str) -> list[str]:
        """Return the damage of a file that was fetched, reading every byte."""
        return [] if self._folder is not None else self._files.damage(name)

    def file(self, name: str) -> Path:
        """Return a file, verified by its checksum if it has one. Raises NotOnServer."""
        if self._folder is not None:
            path = inside(self._folder, name)
            if not path.is_file():
                raise NotOnServer(f"{path} does not exist")
            if not stays_inside(self._folder, path):
                raise InfraError(f"a link in the path {path} leads outside of {self._folder}")
            return path

        def bring(folder: Path) -> Path:
            part = folder / "part"
            download(f"{self._url}/{name}", part, AAR_BOUNDS)
            self._verify(name, part)
            return part

        return self._files.get(name, bring, title=name.rpartition("/")[2]).path

    def _verify(self, name: str, file: Path) -> None:
        for kind in ("sha256", "sha1"):  # the better first
            path = file.with_name("checksum")
            try:
                download(f"{self._url}/{name}.{kind}", path, _CHECKSUM_BOUNDS)
            except NotOnServer:
                continue
            # it may also name the file
            listed = (path.read_text("ascii", "replace").split() or [""])[0].lower()
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, kind).hexdigest()
            if listed != digest:
                problem = f"has {kind} {digest}, but the repository lists {listed[:64]!r}"
                raise InfraError(f"{self._url}/{name} {problem}; the file is not used")
            return
