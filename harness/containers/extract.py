"""The contexts of artefacts as separate files: for people, and in the cache for the harness."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from harness.containers.artefact import Artefact, ArtefactError, Blob, Piece
from harness.containers.manifest import MANIFEST, Manifest, ModelFile, PieceEntry
from harness.core.errors import ConfigError, InfraError
from harness.core.files import copy_range, sha256_of, written_whole
from harness.core.paths_inside import name_problem
from harness.core.state_folders import cache_problem
from harness.core.verified_folder import key_of, make_once, publish, work_folder, write_manifest

_log = logging.getLogger(__name__)

PIECES: Final = "pieces"
"""Folder of the cache with copies of pieces that lie inside other files."""
_OF_THE_ENTRY: Final = ("artefact", "sha256")
_UNPACK_S: Final = 900.0


def piece_file(piece: Blob, cache_root: Path) -> Path:
    """Return a file with just the bytes of a piece, for programs that open files by their path.

    It is the piece's own file if the piece is all of it and nobody else can replace it, else a
    copy in the cache, made once.

    Raises ArtefactError for one that is empty or gone, InfraError.
    """
    whole = piece if isinstance(piece, Piece) else None
    if whole is not None and whole.kind == "empty":
        raise ArtefactError(f"{piece.origin} has no context: its cache is empty", file=piece.path)
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
    # the suffix decides how an array is read
    suffix = ".npy" if piece.origin.endswith(".npy") else ".bin"
    state = f"{piece.path.absolute()}\n{status.st_mtime_ns} {status.st_size} "
    key = f"{state}{piece.offset} {piece.size}".encode("utf-8", "surrogateescape")
    path = folder / f"{hashlib.sha256(key).hexdigest()}{suffix}"
    if not path.is_file() or path.stat().st_size != piece.size:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as write:
                _copy(piece, write)
        except OSError as error:
            problem = f"cannot copy {piece.origin} of {piece.path} into {folder}"
            raise cache_problem(error, problem) from error
    return path


def _may_be_swapped(blob: Blob) -> bool:
    """Return whether others can replace a file by a link after it was checked.

    That is anybody who may write in its folders, from `root` on.
    """
    if blob.root is None:
        return False
    for folder in blob.path.parents:
        if folder.is_relative_to(blob.root):
            status = folder.stat()
            # many systems give each user a private group that may write
            alone = status.st_gid == status.st_uid
            writable = stat.S_IWOTH | (0 if alone else stat.S_IWGRP)
            if status.st_uid not in (os.geteuid(), 0) or status.st_mode & writable:
                return True
    return False


def no_context_error(opened: Sequence[Artefact]) -> ConfigError:
    """Return the error for artefacts without any context binary."""
    onnx = any(artefact.kind == "onnx" for artefact in opened)
    advice = "; `qnn-harness model compile` compiles a model to one" if onnx else ""
    kind = opened[0].kind if opened else "list"
    problem = f"this {kind} has no context binary{advice}"
    return ConfigError(problem, file=opened[0].path if opened else None)


def unpacked_model(artefact: Artefact, cache_root: Path) -> Path:
    """Unpack the model of a bundle, with the files that it ran with, into a folder of the cache.

    Raises ArtefactError for a file that differs from the packed one, InfraError.
    """
    files: Sequence[tuple[ModelFile, Blob]] = artefact.facts["model"]
    hashes = {entry.file: entry.sha256 for entry, _ in files}
    folder = cache_root / "models" / key_of(sorted(hashes.items()))

    def build() -> None:
        with work_folder(folder.parent) as work:
            for name, blob in ((entry.file, blob) for entry, blob in files):
                path = work / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as output:
                    _copy(blob, output)
                if sha256_of(path) != hashes[name]:
                    raise ArtefactError(
                        f"{name} has changed since it was packed", file=artefact.path
                    )
            write_manifest(work, hashes, hashes=hashes)
            publish(work, folder)

    purpose = f"unpacking the model of {artefact.path.name}"
    unpacked = make_once(folder, hashes, build, doing=purpose, timeout_s=_UNPACK_S)
    return unpacked.files[files[0][0].file].path


def extract(artefacts: Iterable[Artefact], folder: Path) -> Manifest:
    """Copy every piece into a new folder, with a manifest.json that lists them.

    Files are named like the artefact, and numbered if it has several pieces. Each ends in .bin or
    .dlc, so that none is a program. The folder is written whole or not at all. Raises
    ArtefactError, InfraError, and ConfigError if there is nothing to copy, or the folder exists.
    """
    opened = list(artefacts)
    if not any(artefact.pieces for artefact in opened):
        raise no_context_error(opened)
    problem = ConfigError("already exists; name a new folder", file=folder, field="--output")
    if os.path.lexists(folder):
        raise problem
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".extract-", dir=folder.parent) as work:
            output = Path(work) / "made"
            output.mkdir()
            manifest = _extract_into(output, opened)
            output.rename(folder)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(
            "has a parent that is a file; name another folder", file=folder, field="--output"
        ) from error
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # another process made it meanwhile
            raise problem from error
        raise InfraError(f"cannot write to {folder}: {error.strerror or error}") from error
    return manifest


def _copy(blob: Blob, output: BinaryIO) -> None:
    try:
        with blob.open() as source:
            copy_range(source, blob.offset, blob.size, output)
    except EOFError as error:
        raise ArtefactError(f"{blob.origin}: {error}", file=blob.path) from error


def _extract_into(folder: Path, artefacts: Sequence[Artefact]) -> Manifest:
    used_names, entries = {MANIFEST}, list[PieceEntry]()
    copied: dict[tuple[Path, int, int], tuple[str, str]] = {}
    for artefact in artefacts:
        width = len(str(len(artefact.pieces) - 1))
        for number, piece in enumerate(artefact.pieces):
            place, name, digest = (piece.path, piece.offset, piece.size), None, None
            if piece.kind == "empty":
                text = "%s: %s is empty; no file is written for it"
                _log.warning(text, artefact.path, piece.origin)
            elif place in copied:
                name, digest = copied[place]
            else:
                preferred = piece.path.name  # a context binary in its own file keeps its name
                if piece.path == artefact.path and len(artefact.pieces) > 1:
                    preferred = f"{artefact.path.name}.{number:0{width}}"
                name = _free_name(preferred, ".dlc" if piece.kind == "dlc" else ".bin", used_names)
                digest = piece.sha256()
                with (folder / name).open("xb") as write:
                    _copy(piece, write)
                copied[place] = name, digest
            facts = {key: piece.facts[key] for key in piece.facts if key not in _OF_THE_ENTRY}
            entry = PieceEntry(
                file=name,
                size=piece.size,
                sha256=digest,
                kind=piece.kind,
                artefact=piece.facts.get("artefact", artefact.path.name),
                origin=piece.origin,
                facts=facts,
            )
            entries.append(entry)
    manifest = Manifest(pieces=tuple(entries))
    text = json.dumps(manifest.as_json(), indent=1, sort_keys=True)
    (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")
    return manifest


def _free_name(preferred: str, suffix: str, used_names: set[str]) -> str:
    """Return the preferred name if it is valid, visible and free, with the suffix; note its use."""
    if not preferred.endswith(suffix):
        preferred += suffix
    if name_problem(preferred, flat=True) is not None or preferred.startswith("."):
        preferred = f"file{suffix}"
    name, count = preferred, 1
    while name.casefold() in used_names:
        count += 1
        name = f"{count}-{preferred}"
    used_names.add(name.casefold())
    return name
