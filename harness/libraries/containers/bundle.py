"""Bundles: a manifest with all its files in one zip, stored as they are, to be handed over.

The manifest is the zip's first file. Nothing is unpacked: contexts are loaded from their places
inside, as those of a .pte are, and what is compressed is refused.
"""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.ground.errors import ConfigError, InfraError
from harness.ground.files.archive import ArchiveError, ArchiveLimits, opened_archive
from harness.ground.files.names_inside import name_problem
from harness.ground.files.whole_file import written_whole
from harness.libraries.containers.artefact import Artefact, Blob
from harness.libraries.containers.file_bytes import FileBytes
from harness.libraries.containers.manifest import MANIFEST, Manifest, listed

_CHUNK: Final = 1 << 20
# of the head of a file in a zip: its bytes, and the length of its name and of what follows that
_HEAD_BYTES: Final = 30
_LENGTHS: Final = struct.Struct("<26xHH")
# contexts may be as large as a disk, since nothing is unpacked
_LIMITS: Final = ArchiveLimits(
    members=1 << 15,
    directory_bytes=8 << 20,
    archive_bytes=1 << 50,
    total_bytes=1 << 50,
    ratio=1 << 50,
    zip64=True,
)


def read_bundle(data: FileBytes) -> Artefact | None:
    """What the manifest in a bundle lists; None if a zip begins with none. Raises ArtefactError."""
    name = MANIFEST.encode()
    held = max(0, min(len(name), data.size - _HEAD_BYTES))
    if data.at(_HEAD_BYTES if held else 0, held, "the name of the first file") != name:
        return None
    places: dict[str, Blob] = {}
    for file, offset, size in _files(data):
        if file in places:
            raise data.error(f"has the file {file!r} twice", offset)
        places[file] = Blob(data.path, offset, size, file, within=data.within)

    def inside(name: str) -> Blob:
        if name not in places:
            raise data.error(f"the bundle has no file {name!r}, which its manifest names", 0)
        return places[name]

    if MANIFEST not in places:
        raise data.error(f"the name of the first file is longer than {MANIFEST!r}", 0)
    manifest = places[MANIFEST]
    return replace(listed(data, manifest.offset, manifest.size, inside), kind="bundle")


def _files(data: FileBytes) -> Iterator[tuple[str, int, int]]:
    """Name, place and size of each file in a zip that compresses none."""
    try:
        with data.open() as file, opened_archive(file, _LIMITS) as opened:
            members = opened.infolist()
    except (ArchiveError, OSError) as error:
        raise data.error(f"the zip is damaged: {error}", 0) from error
    for member in members:
        name, at = member.orig_filename, member.header_offset
        if problem := name_problem(name):
            raise data.error(f"the file {name[:200]!r} in the zip {problem}", at)
        stored = member.compress_type == zipfile.ZIP_STORED
        if not stored or member.compress_size != member.file_size:
            raise data.error(f"{name!r} is compressed: a bundle holds files as they are", at)
        lengths = _LENGTHS.unpack(data.at(at, _HEAD_BYTES, f"the head of {name!r}"))
        content = at + _HEAD_BYTES + sum(lengths)
        data.require(content, member.file_size, f"{name!r}")
        yield name, content, member.file_size


def write_bundle(
    path: Path, manifest: Manifest, texts: Mapping[str, bytes], files: Mapping[str, Path]
) -> None:
    """Writes a bundle of a manifest, the files that it names and texts for whoever gets it.

    The same bytes come of the same.

    It is there whole or not at all. Raises ConfigError for a path that cannot be one, InfraError.
    """
    try:
        if path.is_dir():
            raise ConfigError("is a folder; name a file", file=path, field="--output")
        with written_whole(path) as stream, zipfile.ZipFile(stream, "w") as archive:
            for name, text in {MANIFEST: manifest.text().encode(), **texts}.items():
                archive.writestr(undated_entry(name), text)
            for name, file in sorted(files.items()):
                entry = undated_entry(name)
                entry.file_size = file.stat().st_size
                with file.open("rb") as content, archive.open(entry, "w") as target:
                    shutil.copyfileobj(content, target, _CHUNK)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=path) from error
    except OSError as error:
        raise InfraError(f"cannot write {path}: {error.strerror or error}") from error


def undated_entry(name: str) -> zipfile.ZipInfo:
    """A file without date, owner and system, which would tell who made it."""
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    return entry
