"""Maven repositories, as a folder or behind a URL: coordinates, versions, POMs, checked files."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self
from xml.etree import ElementTree

from harness.ground.errors import ConfigError, InfraError
from harness.ground.errors.outgoing_text import without_secrets
from harness.ground.files.fetched import FetchedFiles
from harness.ground.files.names_inside import inside, name_problem, stays_inside
from harness.ground.files.whole_file import read_bounded
from harness.libraries.runtimes.download import Bounds, NotThere, download

_log = logging.getLogger(__name__)

QNN_RUNTIME: Final = "com.qualcomm.qti:qnn-runtime"
METADATA: Final = "maven-metadata.xml"
CHECKSUMS: Final = ("sha256", "sha1")
"""The kinds of checksums there may be beside a file, the better first."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_DIGEST_LENGTHS: Final = {"sha256": 64, "sha1": 40}
_MAX_VERSIONS = 1000
_MAX_DEPENDENCIES = 1000

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
        """Reads com.qualcomm.qti:qnn-runtime:2.49.0. Raises ConfigError for anything else."""
        parts = text.split(":")
        if len(parts) not in (2, 3) or not all(_is_part(part) for part in parts):
            raise ConfigError(
                f"{text[:120]!r} are no coordinates: group:artifact or group:artifact:version, "
                f"as in {QNN_RUNTIME}:2.49.0"
            )
        return cls(*parts)

    def at(self, version: str) -> Self:
        """The same artifact in a version."""
        return replace(self, version=version)

    @property
    def folder(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}"

    def file(self, extension: str) -> str:
        """Where a file of the version is in a repository (`aar`, `pom`)."""
        return f"{self.folder}/{self.version}/{self.artifact}-{self.version}.{extension}"

    def __str__(self) -> str:
        name = f"{self.group}:{self.artifact}"
        return f"{name}:{self.version}" if self.version else name


def metadata_versions(content: bytes) -> list[str]:
    """The versions that a maven-metadata.xml lists; raises ValueError if it is none."""
    found = [
        (element.text or "").strip()
        for element in _tree(content).iterfind("./versioning/versions/version")
    ]
    if len(found) > _MAX_VERSIONS:
        raise ValueError(f"it lists {len(found)} versions")
    return [version for version in dict.fromkeys(found) if _is_part(version)]


def pom_dependencies(content: bytes) -> list[Coordinates]:
    """What a POM depends on at run time, where it names an exact version; raises ValueError."""
    found = []
    for index, element in enumerate(_local(_tree(content), "dependencies", "dependency")):
        if index >= _MAX_DEPENDENCIES:
            raise ValueError("it has too many dependencies")
        said = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in element}
        version = said.get("version", "").strip("[]")
        parts = (said.get("groupId", ""), said.get("artifactId", ""), version)
        if said.get("scope", "compile") in ("compile", "runtime") and all(map(_is_part, parts)):
            found.append(Coordinates(*parts))
    return found


def checksum(text: str, kind: str) -> str | None:
    """The digest in a .sha1 or .sha256 file, which may name the file behind it."""
    word = (text.split() or [""])[0].lower()
    right = len(word) == _DIGEST_LENGTHS[kind] and re.fullmatch(r"[0-9a-f]+", word)
    return word if right else None


def _is_part(text: str) -> bool:
    # a group's dots are folders
    return _PART.fullmatch(text) is not None and name_problem(text.replace(".", "/")) is None


def _tree(content: bytes) -> ElementTree.Element:
    # Nothing that Maven writes declares a document type, and entities are made in one.
    if b"<!" in content.replace(b"<!--", b""):
        raise ValueError("it declares a document type")
    try:
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, LookupError, RecursionError) as error:
        raise ValueError(f"it is no XML: {error}") from error


def _local(root: ElementTree.Element, *path: str) -> Iterator[ElementTree.Element]:
    """The elements at a path below, whatever their namespace."""
    if not path:
        yield root
        return
    for child in root:
        if isinstance(child.tag, str) and child.tag.rpartition("}")[2] == path[0]:
            yield from _local(child, *path[1:])


class FolderRepository:
    """A repository on this computer, such as ~/.m2/repository or a mirror.

    Every method raises InfraError.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def versions(self, artifact: Coordinates) -> list[str]:
        """The versions there are, in no order: what is really there, whatever a list says."""
        folder = self._root / artifact.folder
        try:
            with os.scandir(folder) as found:
                names = [entry.name for entry in found if entry.is_dir()]
        except OSError as error:
            raise NotThere(f"{folder}: {error.strerror}") from error
        named = {name: artifact.at(name).file("aar") for name in names if _is_part(name)}
        return [name for name, file in named.items() if inside(self._root, file).is_file()]

    def file(self, name: str) -> Path:
        """A file of the repository; a checksum beside it has to be right. Raises NotThere."""
        path = inside(self._root, name)
        if not path.is_file():
            raise NotThere(f"{path} is not there")
        if not stays_inside(self._root, path):
            raise InfraError(f"{path} is, or lies behind, a link to outside of {self._root}")
        if damage := self.damage(name):
            raise InfraError(damage[0])
        return path

    def is_cached(self, name: str) -> bool:
        """Whether `file` needs no network."""
        return True

    def damage(self, name: str) -> list[str]:
        """What is wrong with a file, every byte read."""
        path = inside(self._root, name)
        for kind in CHECKSUMS:
            try:
                beside = path.with_name(f"{path.name}.{kind}")
                if not beside.is_file():
                    continue
                text = read_bounded(beside, _CHECKSUM_BOUNDS.max_bytes).decode("ascii")
                said = checksum(text, kind)
                found = _digest(path, kind)
            except (OSError, ValueError):
                continue
            if said is not None:
                wrong = f"{path} has {kind} {found}, and {said} is written beside it"
                return [] if said == found else [wrong]
        return []


class HttpRepository:
    """A repository behind a URL; what was fetched is kept below `cache_root` and checked there."""

    def __init__(self, url: str, cache_root: Path, *, bounds: Bounds = AAR_BOUNDS) -> None:
        self._url = url.rstrip("/")
        key = hashlib.sha256(without_secrets(self._url).encode()).hexdigest()[:16]
        root = cache_root / "maven" / key
        self._files = FetchedFiles(root, timeout_s=bounds.timeout_s, note=".qnn-harness.json")
        self._bounds = bounds
        self._versions: dict[str, list[str]] = {}

    def versions(self, artifact: Coordinates) -> list[str]:
        """See `FolderRepository`; without a network, those known from the last time."""
        name = f"{artifact.folder}/{METADATA}"
        if name not in self._versions:
            kept = self._files.path(name)
            try:
                self._get(name, TEXT_BOUNDS, anew=True)
            except NotThere:
                raise
            except InfraError as error:
                if not kept.is_file():
                    raise
                _log.warning(f"{error}; taking the list of versions of the last time")
            try:
                self._versions[name] = metadata_versions(kept.read_bytes())
            except ValueError as error:
                raise InfraError(f"{self._url}/{name}: {error}") from error
        return self._versions[name]

    def file(self, name: str) -> Path:
        """See `FolderRepository`; hashed once per process."""
        return self._get(name, self._bounds)

    def is_cached(self, name: str) -> bool:
        """See `FolderRepository`."""
        return self._files.is_cached(name)

    def damage(self, name: str) -> list[str]:
        """What is wrong with what was fetched; nothing for a file that is not there."""
        return self._files.damage(name)

    def _get(self, name: str, bounds: Bounds, *, anew: bool = False) -> Path:
        def bring(folder: Path) -> tuple[Path, dict[str, str]]:
            part = download(f"{self._url}/{name}", folder, bounds)
            return part, {"trust": self._verify(name, part)}

        what = name.rpartition("/")[2]
        return self._files.get(name, bring, what=what, anew=anew).path

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


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()
