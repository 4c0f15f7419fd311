"""The contexts of artefacts as files of their own: for people, and in the cache for the harness."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.artefacts.artefact import Artefact, ArtefactError, Piece, PieceKind
from harness.artefacts.manifest import MANIFEST, Manifest, PieceEntry
from harness.errors import ConfigError, InfraError
from harness.files.copy_range import copy_range
from harness.files.whole_file import read_note, sha256_of, write_json

_log = logging.getLogger(__name__)

_OF_THE_ENTRY: Final = ("artefact", "sha256")
_SUFFIX: Final[dict[PieceKind, str]] = {"context": ".bin", "dlc": ".dlc", "empty": ""}


def piece_file(piece: Piece, cache_root: Path) -> Path:
    """A file that holds the bytes of a piece and nothing else.

    The file that it lies in, if it is all of that, else a copy in the cache, made once and named by
    its sha256. Raises ArtefactError for one that is empty or gone, InfraError.
    """
    if piece.kind == "empty":
        raise ArtefactError(f"{piece.origin} holds no context: its cache is empty", file=piece.path)
    try:
        status = piece.path.stat()
    except OSError as error:
        raise ArtefactError(f"is gone: {error.strerror}", file=piece.path) from error
    if (piece.offset, piece.size) == (0, status.st_size):
        if piece.facts.get("sha256"):
            piece.sha256()
        return piece.path
    folder = cache_root / "pieces"
    seen = f"{piece.path.absolute()}\n{status.st_mtime_ns} {status.st_size} "
    key = f"{seen}{piece.offset} {piece.size}".encode("utf-8", "surrogateescape")
    note = folder / f"{hashlib.sha256(key).hexdigest()}.json"
    if known := read_note(note):
        kept = folder / f"{known['sha256']}.bin"
        if kept.is_file() and kept.stat().st_size == piece.size:
            return kept
    part = folder / f".{os.getpid()}-{secrets.token_hex(4)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _copy(piece, part)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        digest = sha256_of(part)
        kept = part.replace(folder / f"{digest}.bin")
        write_json(note, {"sha256": digest})
    except OSError as error:
        problem = f"cannot copy {piece.origin} of {piece.path} into {folder}: {error.strerror}"
        raise InfraError(problem) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return kept


def extract(artefacts: Iterable[Artefact], folder: Path, *, hashed: bool = False) -> Manifest:
    """Copies every piece into a new folder, and a manifest.json that tells of them.

    Files are called like the artefact and numbered, if it has several pieces. With `hashed` the
    manifest has their sha256, which takes longer than to copy them. What ends it, Ctrl-C included,
    leaves nothing behind. Raises ArtefactError, ConfigError if there is nothing to copy or the
    folder is none or not empty, InfraError.
    """
    found = [(one, number) for one in artefacts for number in range(len(one.pieces))]
    if not found:
        raise ConfigError("no context binary is in what was given", field="FILE")
    try:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError("is not empty; name a new folder", file=folder, field="--out")
        taken = {MANIFEST}
        try:
            entries = [_extracted(one, number, folder, taken, hashed) for one, number in found]
            manifest = Manifest(pieces=tuple(entries))
            write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
        except BaseException:
            _remove(folder, taken, new)
            raise
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError("is a file; name a new folder", file=folder, field="--out") from error
    except OSError as error:
        raise InfraError(f"cannot write to {folder}: {error.strerror or error}") from error
    return manifest


def _remove(folder: Path, names: Iterable[str], new: bool) -> None:
    """Takes away what was written so far, and the folder if it is new."""
    with contextlib.suppress(OSError):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        if new:
            folder.rmdir()


def _extracted(
    artefact: Artefact, number: int, folder: Path, taken: set[str], hashed: bool
) -> PieceEntry:
    piece, name, digest = artefact.pieces[number], None, None
    if piece.kind == "empty":
        _log.warning("%s: %s is empty: no file is written for it", artefact.path, piece.origin)
    else:
        name = _name(artefact, number, taken)
        if hashed or piece.facts.get("sha256"):
            digest = piece.sha256()
        _copy(piece, folder / name)
    facts = {key: value for key, value in piece.facts.items() if key not in _OF_THE_ENTRY}
    return PieceEntry(
        file=name,
        size=piece.size,
        sha256=digest,
        kind=piece.kind,
        artefact=piece.facts.get("artefact", artefact.path.name),
        origin=piece.origin,
        facts=facts,
    )


def _name(artefact: Artefact, number: int, taken: set[str]) -> str:
    """A file's name that is not taken yet; a context binary as it lies keeps its own."""
    piece = artefact.pieces[number]
    if piece.path != artefact.path:
        wished = piece.path.name
    elif len(artefact.pieces) == 1:
        suffix = _SUFFIX[piece.kind]
        wished = artefact.path.name
        wished += "" if wished.endswith(suffix) else suffix
    else:
        width = len(str(len(artefact.pieces) - 1))
        wished = f"{artefact.path.name}.{number:0{width}}{_SUFFIX[piece.kind]}"
    name, count = wished, 1
    while name in taken:
        count += 1
        name = f"{count}-{wished}"
    taken.add(name)
    return name


def _copy(piece: Piece, target: Path) -> None:
    try:
        copy_range(piece.path, piece.offset, piece.size, target)
    except EOFError as error:
        raise ArtefactError(f"{piece.origin}: {error}", file=piece.path) from error
