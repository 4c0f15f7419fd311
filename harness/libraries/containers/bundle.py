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
from harness.ground.files.names_inside import MAX_NAME_BYTES, name_problem
from harness.ground.files.whole_file import written_whole
from harness.libraries.containers.artefact import Artefact, Blob
from harness.libraries.containers.file_bytes import FileBytes
from harness.libraries.containers.manifest import MANIFEST, Manifest, listed

_CHUNK: Final = 1 << 20
# the head of a file in a zip: magic, version, flags, method, time, date, crc, packed and real size,
# length of its name and of what follows that
_HEAD: Final = struct.Struct("<4sHHHHHIIIHH")
_FILE, _DIRECTORY = b"PK\x03\x04", b"PK\x01\x02"
_LARGE: Final = 0xFFFFFFFF
_SIZES: Final = struct.Struct("<HHQQ")
_SIZES_ID: Final = 1
_MAX_FILES: Final = 1 << 15


def read_bundle(data: FileBytes) -> Artefact | None:
    """What the manifest in a bundle lists; None if a zip begins with none. Raises ArtefactError."""
    name = MANIFEST.encode()
    held = max(0, min(len(name), data.size - _HEAD.size))
    if data.at(_HEAD.size if held else 0, held, "the name of the first file") != name:
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
    at = 0
    for _ in range(_MAX_FILES):
        if data.at(at, 4, "the end of the files in the zip") == _DIRECTORY:
            return
        head = _HEAD.unpack(data.at(at, _HEAD.size, "the head of a file in the zip"))
        magic, _, flags, method, _, _, _, packed, size, name_bytes, more_bytes = head
        if magic != _FILE:
            raise data.error(f"a file in the zip begins with {magic.hex(' ')}", at)
        behind = at + _HEAD.size
        if name_bytes > MAX_NAME_BYTES:
            raise data.error(f"a file in the zip has a name of {name_bytes} bytes", at)
        name = data.at(behind, name_bytes, "the name of a file").decode("utf-8", "replace")
        if problem := name_problem(name):
            raise data.error(f"the file {name[:200]!r} in the zip {problem}", at)
        more = data.at(behind + name_bytes, more_bytes, f"what is told of {name!r}")
        if method or flags & ~0x800:
            how = "is compressed, encrypted or of a size that is not told before it"
            raise data.error(f"{name!r} {how}: a bundle holds files as they are", at)
        if size == _LARGE and len(more) >= _SIZES.size:
            kind, _, size, packed = _SIZES.unpack_from(more)
            size = size if kind == _SIZES_ID else _LARGE
        content = behind + name_bytes + more_bytes
        data.require(content, size, f"{name!r}")
        if packed != size:
            raise data.error(f"{name!r} has {packed} bytes there, and {size} outside", at)
        yield name, content, size
        at = content + size
    raise data.error(f"the zip has more than {_MAX_FILES} files", at)


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
