"""Recognises what files are, by their content, and has them read."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import itertools
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from harness.libraries.containers.artefact import PIECE_FORMATS, Artefact, ArtefactError
from harness.libraries.containers.blobs import whole_file
from harness.libraries.containers.bundle import read_bundle
from harness.libraries.containers.dlc import read_dlc
from harness.libraries.containers.file_bytes import FileBytes
from harness.libraries.containers.manifest import MANIFEST, MANIFEST_HEAD, read_manifest
from harness.libraries.containers.onnx_file import ONNX_HEAD, read_onnx
from harness.libraries.containers.pte import PTE_IDENTIFIER, read_pte
from harness.libraries.containers.tflite import TFLITE_IDENTIFIER, read_tflite

_log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 16


class UnknownFileError(ArtefactError):
    """A file of no kind that is known."""


class _Format(NamedTuple):
    """A kind of file: which bytes stand where in it. `read` gives None for any other kind."""

    title: str
    suffix: str
    at: int
    magic: bytes
    read: Callable[[FileBytes], Artefact | None]


def _context(data: FileBytes) -> Artefact:
    return Artefact(data.path, "context", (whole_file(data),))


_CONTEXT, _ZIP = PIECE_FORMATS["context"].magic, PIECE_FORMATS["dlc"].magic
_FORMATS: Final = (
    _Format("a QNN context binary", ".bin", 0, _CONTEXT, _context),
    _Format("an ExecuTorch .pte", ".pte", 4, PTE_IDENTIFIER, read_pte),
    _Format("a LiteRT .tflite", ".tflite", 4, TFLITE_IDENTIFIER, read_tflite),
    _Format("a bundle of `contexts bundle`", "", 0, _ZIP, read_bundle),
    _Format("a DLC", ".dlc", 0, _ZIP, read_dlc),
    _Format("an ONNX model", ".onnx", 0, ONNX_HEAD, read_onnx),
    _Format("the manifest.json of `contexts extract`", "", 0, MANIFEST_HEAD, read_manifest),
)
"""All kinds. The first whose `read` gives an artefact counts."""
_KNOWN: Final = f"one of: {', '.join(one.title for one in _FORMATS)}"

SUFFIXES: Final = tuple(one.suffix for one in _FORMATS if one.suffix)
"""What files are called that people take for artefacts; what one is, its content tells."""


def open_artefact(path: str | os.PathLike[str], within: Path | None = None) -> Artefact:
    """What a file holds, whatever it is called; no link is followed below `within`.

    Raises ArtefactError for one that is damaged, and UnknownFileError for one of no known kind.
    """
    with FileBytes(Path(path), within) as data:
        head = data.at(0, min(_HEAD_BYTES, data.size), "the first bytes")
        for one in _FORMATS:
            if head[one.at :].startswith(one.magic) and (found := one.read(data)):
                return found
    begins = f"begins with {head.hex(' ')}" if head else "is empty (0 bytes)"
    problem = f"is no file of a known kind: it {begins}, and should be {_KNOWN}"
    raise UnknownFileError(problem, file=Path(path))


def open_artefacts(
    paths: Iterable[str | os.PathLike[str]],
    told: Callable[[ArtefactError], None] | None = None,
) -> list[Artefact]:
    """The artefacts of files, folders and patterns (`models/*.pte`, `**` for folders below).

    Of a folder: its files in the order of their names, without those that a model or a
    manifest.json among them names. A file there with one of `SUFFIXES` must be an artefact; any
    other that is none is passed by, and logged. Raises ArtefactError for what is no artefact, or
    damaged, and where nothing is found. With `told` each such error goes there, and the other files
    are still opened.
    """
    found: list[Artefact] = []
    for path in map(Path, paths):
        with _told(told, path):
            if path.is_dir():
                found += _recognised(sorted(path.iterdir()), path, path, told)
            elif path.exists() or not glob.has_magic(str(path)):
                found.append(open_artefact(path))
            else:
                named = list(itertools.takewhile(lambda one: not glob.has_magic(one), path.parts))
                folder, left = Path(*named), path.parts[len(named) :]
                matching = sorted(set(_matching(folder, left)))
                files = [one for one in matching if one.suffix in SUFFIXES or not one.is_dir()]
                if not files:
                    raise ArtefactError("no file is called so", file=path)
                found += _recognised(files, path, folder, told)
    return found


def _matching(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """What is called like a pattern in a folder, as `glob` finds it; but it enters no link."""
    first, *rest = parts
    if first == "**" and rest:
        yield from _matching(folder, rest)
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        if entry.name.startswith(".") and not first.startswith("."):
            continue
        path, is_folder = folder / entry.name, entry.is_dir(follow_symlinks=False)
        if first == "**":
            if not rest:
                yield path
            if is_folder:
                yield from _matching(path, parts)
        elif fnmatch.fnmatchcase(entry.name, first):
            if not rest:
                yield path
            elif is_folder:
                yield from _matching(path, rest)


@contextlib.contextmanager
def _told(told: Callable[[ArtefactError], None] | None, path: Path) -> Iterator[None]:
    """Tell an error of the block, or raise it."""
    try:
        try:
            yield
        except OSError as error:
            raise ArtefactError(f"cannot be read: {error.strerror or error}", file=path) from error
    except ArtefactError as error:
        if told is None:
            raise
        told(error)


def _recognised(
    files: list[Path],
    where: Path,
    folder: Path,
    told: Callable[[ArtefactError], None] | None,
) -> list[Artefact]:
    """What was found in a folder, or below, by listing it."""
    found: list[Artefact] = []
    problems: dict[Path, ArtefactError] = {}
    passed: list[Path] = []
    for file in files:
        try:
            found.append(open_artefact(file, folder))
        except ArtefactError as error:
            if _is_passed_by(file, error):
                passed.append(file)
            else:
                problems[file] = error
    pieces = [(one.path, piece) for one in found for piece in one.pieces]
    sides = {
        blob.path
        for own, piece in pieces
        for blob in (piece, *piece.inputs, *piece.expected)
        if blob.path != own
    }
    sides |= {one.path.parent / name for one in found for name in one.facts.get("beside", ())}
    if names := ", ".join(one.name for one in passed if not one.is_dir() and one not in sides):
        _log.info("%s: of no known kind, passed by: %s", where, names)
    for file, problem in problems.items():
        if file not in sides:
            with _told(told, file):
                raise problem
    if len(passed) == len(files):
        raise ArtefactError(f"holds no file of a known kind, which would be {_KNOWN}", file=where)
    return [one for one in found if one.path not in sides]


def _is_passed_by(file: Path, error: ArtefactError) -> bool:
    """Whether something is no artefact, and not called like one: no file, of no known kind, or JSON
    about something else.

    What cannot be read may be one.
    """
    if file.suffix.lower() in SUFFIXES or file.name == MANIFEST:
        return False
    if isinstance(error, UnknownFileError) or file.suffix.lower() == ".json":
        return True
    return not stat.S_ISREG(file.lstat().st_mode)
