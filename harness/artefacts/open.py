"""Recognises what files are, by their content, and has them read."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from harness.artefacts.artefact import SUFFIXES, Artefact, ArtefactError
from harness.artefacts.blobs import CONTEXT_MAGIC, ZIP_MAGIC, whole_file
from harness.artefacts.bundle import is_bundle, read_bundle
from harness.artefacts.dlc import read_dlc
from harness.artefacts.file_bytes import FileBytes
from harness.artefacts.manifest import MANIFEST, MANIFEST_HEAD, read_manifest
from harness.artefacts.onnx_file import ONNX_HEAD, read_onnx
from harness.artefacts.pte import PTE_IDENTIFIER, read_pte
from harness.artefacts.tflite import TFLITE_IDENTIFIER, read_tflite

_log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 16
_KNOWN: Final = (
    "a QNN context binary, an ExecuTorch .pte, an ONNX model, a LiteRT .tflite, a DLC, "
    "a bundle of `contexts bundle`, or the manifest.json of `contexts extract`"
)


class UnknownFileError(ArtefactError):
    """A file of no kind that is known."""


_READERS: Final[tuple[tuple[int, bytes, Callable[[FileBytes], Artefact]], ...]] = (
    (0, CONTEXT_MAGIC, lambda data: Artefact(data.path, "context", (whole_file(data),))),
    (4, PTE_IDENTIFIER, read_pte),
    (4, TFLITE_IDENTIFIER, read_tflite),
    (0, ZIP_MAGIC, lambda data: read_bundle(data) if is_bundle(data) else read_dlc(data)),
    (0, ONNX_HEAD, read_onnx),
    (0, MANIFEST_HEAD, read_manifest),
)
"""At which byte which bytes stand, and who reads it then; the first that fits."""


def open_artefact(path: str | os.PathLike[str]) -> Artefact:
    """What a file holds, whatever it is called.

    Raises ArtefactError for one that is damaged, and UnknownFileError for one of no known kind.
    """
    with FileBytes(Path(path)) as data:
        head = data.at(0, min(_HEAD_BYTES, data.size), "the first bytes")
        for offset, magic, read in _READERS:
            if head[offset:].startswith(magic):
                return read(data)
    begins = head.hex(" ") or "nothing"
    problem = f"is no artefact that is known: it begins with {begins}, and should be {_KNOWN}"
    raise UnknownFileError(problem, file=Path(path))


def open_artefacts(
    paths: Iterable[str | os.PathLike[str]],
    told: Callable[[ArtefactError], None] | None = None,
) -> list[Artefact]:
    """The artefacts of files, folders and patterns (`models/*.pte`, `**` for folders below).

    Of a folder: what its manifest.json says if there is one, else its files in the order of their
    names, but those that a model among them names, and those of no known kind, which are logged.
    Raises ArtefactError for whatever is damaged, and where nothing is found; each such error is
    `told` instead, if that is given, and the others are still opened.
    """
    found: list[Artefact] = []
    for path in map(Path, paths):
        with _told(told), _access(path):
            if path.is_dir() and (path / MANIFEST).exists():
                found.append(open_artefact(path / MANIFEST))
            elif path.is_dir():
                files = sorted(one for one in path.iterdir() if one.is_file())
                found += _recognised(files, path, told)
            elif path.exists() or not glob.has_magic(str(path)):
                found.append(open_artefact(path))
            else:
                matching = sorted(glob.glob(str(path), recursive=True))
                files = [file for one in matching if not (file := Path(one)).is_dir()]
                if not files:
                    raise ArtefactError("no file is called so", file=path)
                found += _recognised(files, path, told)
    return found


@contextlib.contextmanager
def _told(told: Callable[[ArtefactError], None] | None) -> Iterator[None]:
    try:
        yield
    except ArtefactError as error:
        if told is None:
            raise
        told(error)


@contextlib.contextmanager
def _access(path: Path) -> Iterator[None]:
    """Tells what the system refuses on the way to a file: rights of its folder, a name too long."""
    try:
        yield
    except OSError as error:
        raise ArtefactError(f"cannot be read: {error.strerror or error}", file=path) from error


def _recognised(
    files: list[Path], where: Path, told: Callable[[ArtefactError], None] | None
) -> list[Artefact]:
    found, passed = [], []
    for file in files:
        with _told(told):
            try:
                found.append(open_artefact(file))
            except UnknownFileError:
                passed.append(file.name)
    for level, names in (
        (logging.WARNING, [name for name in passed if Path(name).suffix in SUFFIXES]),
        (logging.INFO, [name for name in passed if Path(name).suffix not in SUFFIXES]),
    ):
        if names:
            _log.log(level, "%s: of no known kind, passed by: %s", where, ", ".join(names))
    if len(passed) == len(files):
        raise ArtefactError(f"holds no artefact; one would be {_KNOWN}", file=where)
    sides = {piece.path for one in found if one.kind != "context" for piece in one.pieces}
    return [one for one in found if one.kind != "context" or one.path not in sides]
