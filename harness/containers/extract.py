"""The contexts of artefacts as files of their own: for people, and in the cache for the harness."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from harness.containers.artefact import (
    PIECE_FORMATS,
    Artefact,
    ArtefactError,
    Blob,
    Piece,
)
from harness.containers.manifest import (
    MANIFEST,
    Manifest,
    ModelFile,
    PieceEntry,
    TensorEntry,
)
from harness.core.cache import cache_problem
from harness.core.errors import ConfigError, InfraError
from harness.core.local_file import copy_range
from harness.core.names_inside import name_problem
from harness.core.outgoing_text import counted
from harness.core.verified_folder import (
    key_of,
    made_once,
    publish,
    work_folder,
    write_manifest,
)
from harness.core.whole_file import sha256_of, written_whole

_log = logging.getLogger(__name__)

PIECES: Final = "pieces"
"""The folder of the cache with the pieces that lie inside other files."""
_OF_THE_ENTRY: Final = ("artefact", "sha256")
_TENSORS: Final = (".raw", ".npy")
_UNPACK_S: Final = 900.0


def piece_file(piece: Blob, cache_root: Path) -> Path:
    """A file that holds the bytes of a piece and nothing else, for what opens files by their path.

    It is the file that the piece lies in, if it is all of that and nobody else can exchange it.
    Else it is a copy in the cache, made once.

    Raises ArtefactError for one that is empty or gone, InfraError.
    """
    whole = piece if isinstance(piece, Piece) else None
    if whole is not None and whole.kind == "empty":
        raise ArtefactError(f"{piece.origin} holds no context: its cache is empty", file=piece.path)
    try:
        with piece.open() as file:
            status = os.fstat(file.fileno())
    except OSError as error:
        raise ArtefactError(f"is gone: {error.strerror}", file=piece.path) from error
    if (piece.offset, piece.size) == (0, status.st_size) and not _may_be_swapped(piece):
        if whole is not None and whole.facts.get("sha256"):
            whole.sha256()
        return piece.path
    folder = cache_root / PIECES
    # how an array is read, its name tells
    suffix = ".npy" if piece.origin.endswith(".npy") else ".bin"
    seen = f"{piece.path.absolute()}\n{status.st_mtime_ns} {status.st_size} "
    key = f"{seen}{piece.offset} {piece.size}".encode("utf-8", "surrogateescape")
    kept = folder / f"{hashlib.sha256(key).hexdigest()}{suffix}"
    if not kept.is_file() or kept.stat().st_size != piece.size:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with written_whole(kept) as write:
                _copy(piece, write)
        except OSError as error:
            problem = f"cannot copy {piece.origin} of {piece.path} into {folder}"
            raise cache_problem(error, problem) from error
    return kept


def _may_be_swapped(blob: Blob) -> bool:
    """Whether somebody else can put a link in the place of a file, after it was looked at.

    That is whoever may write in its folders, from `within` on.
    """
    if blob.within is None:
        return False
    folders = [one for one in blob.path.parents if one.is_relative_to(blob.within)]
    return any(map(_others_may_write, folders))


def _others_may_write(folder: Path) -> bool:
    status = folder.stat()
    # many systems give each user a group of his own, and let it write
    alone = status.st_gid == status.st_uid
    writable = stat.S_IWOTH | (0 if alone else stat.S_IWGRP)
    return status.st_uid not in (os.geteuid(), 0) or bool(status.st_mode & writable)


def nothing_in(opened: Sequence[Artefact]) -> ConfigError:
    """What to say where no context binary is in any of these."""
    more = f", nor in {counted(len(opened) - 1, 'other file')}" if len(opened) > 1 else ""
    onnx = any(one.kind == "onnx" for one in opened)
    advice = "; `qnn-harness contexts compile` makes one of a model" if onnx else ""
    what = opened[0].kind if opened else "list"
    problem = f"no context binary is in this {what}{more}{advice}"
    return ConfigError(problem, file=opened[0].path if opened else None)


def unpacked_model(artefact: Artefact, cache_root: Path) -> Path:
    """The model of a bundle, in a folder of the cache with all the files that it was run with.

    Raises ArtefactError for a file that is not what was packed, InfraError.
    """
    files: Sequence[tuple[ModelFile, Blob]] = artefact.facts["model"]
    hashes = {entry.file: entry.sha256 for entry, _ in files}
    folder = cache_root / "models" / key_of(sorted(hashes.items()))

    def make() -> None:
        with work_folder(folder.parent) as work:
            for name, blob in ((entry.file, blob) for entry, blob in files):
                path = work / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as write:
                    _copy(blob, write)
                if sha256_of(path) != hashes[name]:
                    raise ArtefactError(f"{name} is not what was packed", file=artefact.path)
            write_manifest(work, hashes, hashes=hashes)
            publish(work, folder)

    doing = f"unpacking the model of {artefact.path.name}"
    kept = made_once(folder, hashes, make, doing=doing, timeout_s=_UNPACK_S)
    return kept.files[files[0][0].file].path


def extract(artefacts: Iterable[Artefact], folder: Path) -> Manifest:
    """Copies every piece into a new folder, and a manifest.json that tells of them.

    Files are called like the artefact, and numbered if it has several pieces. Each ends in .bin,
    .dlc, .raw or .npy, so that none is a program. The folder is there whole or not at all. Raises
    ArtefactError, InfraError, and ConfigError if there is nothing to copy, or something is there.
    """
    opened = list(artefacts)
    found = [(one, number) for one in opened for number in range(len(one.pieces))]
    if not found:
        raise nothing_in(opened)
    problem = ConfigError("is there already; name a new folder", file=folder, field="--output")
    if os.path.lexists(folder):
        raise problem
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".extract-", dir=folder.parent) as work:
            made = Path(work) / "made"
            made.mkdir()
            manifest = _Extracting(made).extracted(found)
            made.rename(folder)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError("lies in a file; name a folder", file=folder, field="--output") from error
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # another process made it meanwhile
            raise problem from error
        raise InfraError(f"cannot write to {folder}: {error.strerror or error}") from error
    return manifest


def _copy(blob: Blob, write: BinaryIO) -> None:
    try:
        with blob.open() as read:
            copy_range(read, blob.offset, blob.size, write)
    except EOFError as error:
        raise ArtefactError(f"{blob.origin}: {error}", file=blob.path) from error


@dataclass
class _Extracting:
    """What was copied so far: a place in a file is copied once."""

    folder: Path
    taken: set[str] = field(default_factory=lambda: {MANIFEST})
    names: dict[Blob, str] = field(default_factory=dict)
    digests: dict[Blob, str] = field(default_factory=dict)

    def extracted(self, found: Sequence[tuple[Artefact, int]]) -> Manifest:
        """Copies all, and writes the manifest when they are there."""
        entries = tuple(self._entry(artefact, number) for artefact, number in found)
        alone = {id(artefact): artefact.facts for artefact, _ in found}
        told = next(iter(alone.values())) if len(alone) == 1 else {}
        manifest = Manifest(pieces=entries, plan=told.get("plan"), expects=told.get("expects"))
        text = json.dumps(manifest.told(), indent=1, sort_keys=True)
        (self.folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")
        return manifest

    def _entry(self, artefact: Artefact, number: int) -> PieceEntry:
        """Copies a piece, if it is not there yet, with the raw files that came with it."""
        piece, name, digest = artefact.pieces[number], None, None
        if piece.kind == "empty":
            _log.warning("%s: %s is empty: no file is written for it", artefact.path, piece.origin)
        else:
            place = _place(piece)
            digest = self.digests.get(place) or self.digests.setdefault(place, piece.sha256())
            name = self._copied(piece, _wished(artefact, number))
        return PieceEntry(
            file=name,
            size=piece.size,
            sha256=digest,
            kind=piece.kind,
            artefact=piece.facts.get("artefact", artefact.path.name),
            origin=piece.origin,
            facts={key: value for key, value in piece.facts.items() if key not in _OF_THE_ENTRY},
            inputs=self._tensors(piece.inputs),
            expected=self._tensors(piece.expected),
        )

    def _tensors(self, blobs: Iterable[Blob]) -> tuple[TensorEntry, ...]:
        return tuple(
            TensorEntry(file=self._copied(one, one.origin, _TENSORS), size=one.size)
            for one in blobs
        )

    def _copied(self, blob: Blob, wished: str, suffixes: Sequence[str] = ()) -> str:
        """The name of the file with its bytes: as wished, if that may be one and is free."""
        place = _place(blob)
        if place in self.names:
            return self.names[place]
        kind = blob.kind if isinstance(blob, Piece) else "context"
        suffixes = suffixes or (PIECE_FORMATS[kind].suffix,)
        wished = wished if wished.endswith(tuple(suffixes)) else f"{wished}{suffixes[0]}"
        if name_problem(wished, flat=True) is not None:
            wished = f"file{suffixes[0]}"
        name, count = wished, 1
        while name.casefold() in self.taken:
            count += 1
            name = f"{count}-{wished}"
        self.taken.add(name.casefold())
        with (self.folder / name).open("xb") as write:
            _copy(blob, write)
        self.names[place] = name
        return name


def _place(blob: Blob) -> Blob:
    return Blob(blob.path, blob.offset, blob.size, "", within=blob.within)


def _wished(artefact: Artefact, number: int) -> str:
    """What the file of a piece should be called; a context binary as it lies keeps its name."""
    piece = artefact.pieces[number]
    if piece.path != artefact.path:
        return piece.path.name
    if len(artefact.pieces) == 1:
        return artefact.path.name
    width = len(str(len(artefact.pieces) - 1))
    return f"{artefact.path.name}.{number:0{width}}"
