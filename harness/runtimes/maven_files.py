"""What Maven repositories are made of: coordinates, lists of versions, POMs, checksums (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Self
from xml.etree import ElementTree

from harness.errors import ConfigError

QNN_RUNTIME: Final = "com.qualcomm.qti:qnn-runtime"
METADATA: Final = "maven-metadata.xml"
CHECKSUMS: Final = ("sha256", "sha1")
"""The kinds of checksums there may be beside a file, the better first."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_DIGEST_LENGTHS: Final = {"sha256": 64, "sha1": 40}
_MAX_VERSIONS = 1000
_MAX_DEPENDENCIES = 1000


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
        """Where the artifact is in a repository."""
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
    return _PART.fullmatch(text) is not None and ".." not in text


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
