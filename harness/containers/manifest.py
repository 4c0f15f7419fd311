"""manifest.json: contexts as files beside it, their origins, and how to run them; and bundles.

The manifest of a bundle is the zip's first file. Nothing is unpacked: contexts are loaded from
their places inside, as those of a .pte are. Compressed files are refused.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, Field

from harness.containers.artefact import (
    Artefact,
    ArtefactError,
    Blob,
    FileBytes,
    Piece,
    PieceKind,
    open_file,
)
from harness.core.archive import ArchiveError, ArchiveLimits, open_archive
from harness.core.bounded_json import parse_model, problem_in
from harness.core.context_options import OptionValue, checked_options
from harness.core.engine import DEFAULT_ENGINE, ENGINES
from harness.core.errors import ConfigError, InfraError
from harness.core.files import written_whole
from harness.core.json_record import Schema1
from harness.core.paths_inside import name_problem

MANIFEST: Final = "manifest.json"
MANIFEST_HEAD: Final = b"{"

_MAX_PIECES: Final = 1 << 14
_MAX_TENSORS: Final = 512


class TensorEntry(BaseModel, extra="forbid", frozen=True):
    """The raw file of an input or of an expected output."""

    file: str
    size: Annotated[int, Field(ge=0)]


Tensors = Annotated[tuple[TensorEntry, ...], Field(max_length=_MAX_TENSORS)]


class PieceEntry(BaseModel, extra="forbid", frozen=True):
    """One piece: its file beside the manifest (none if it was empty), and its origin.

    Several may share a file. Without `inputs` they are generated when it runs; without `expected`
    its outputs are not compared.
    """

    file: str | None
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None
    kind: PieceKind
    artefact: str
    origin: str
    facts: dict[str, Any]
    inputs: Tensors = ()
    expected: Tensors = ()


class ModelFile(BaseModel, extra="forbid", frozen=True):
    """A file of a packed case: of its model, or a tensor of `inputs` or `expected`."""

    file: Annotated[str, Field(pattern="^(model|inputs|expected)/.")]
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


# references computed on the CPU are files once they are packed
_AGAINST: Final = re.compile(r" against [^;]{1,100}?(?=, (?:at|of) )")
_Limit = Annotated[float | None, Field(allow_inf_nan=False)]


def _known_engine(name: str) -> str:
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r:.80} (valid: {', '.join(ENGINES)})")
    return name


def _context_options(options: dict[str, OptionValue]) -> dict[str, OptionValue]:
    try:
        return checked_options(options)
    except ConfigError as error:
        raise ValueError(str(error)) from error


class RunPlan(BaseModel, extra="forbid", frozen=True):
    """Options of the run that was packed; those of a new run take precedence.

    `qnn` and `backend` are those that ran, `build_id` is that of its libraries. The limits are the
    conditions for each output.
    """

    engine: Annotated[str, AfterValidator(_known_engine)] = DEFAULT_ENGINE
    residency: Literal["resident", "sequential", "window"] = "resident"
    fallback: bool = False
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    graph: str | None = None
    qnn: str | None = None
    backend: str | None = None
    build_id: str | None = None
    soc: str | None = None
    target: str | None = None
    max_error: _Limit = None
    min_cosine: _Limit = None
    min_sqnr: _Limit = None
    context_options: Annotated[dict[str, OptionValue], AfterValidator(_context_options)] = {}


class Expects(BaseModel, extra="forbid", frozen=True):
    """Outcome of the packed run, which a new run should reproduce."""

    outcome: Literal["passed", "failed", "crashed", "hung"]
    signature: str | None

    def met_by(self, outcome: str, signature: str | None) -> bool:
        """Return whether a run ended the same way, whatever its outputs were compared with."""
        now, then = (_AGAINST.sub("", text or "") for text in (signature, self.signature))
        return (outcome, now) == (self.outcome, then)

    def __str__(self) -> str:
        return self.outcome if self.signature is None else f"{self.outcome}, {self.signature}"


class Manifest(BaseModel, extra="forbid", frozen=True):
    """The pieces in the order in which a runtime would load them.

    `model` are the files of a packed model, the model itself first, which runs without pieces.
    """

    schema_number: Schema1 = 1
    pieces: Annotated[tuple[PieceEntry, ...], Field(max_length=_MAX_PIECES)]
    model: Annotated[tuple[ModelFile, ...], Field(max_length=_MAX_TENSORS)] = ()
    plan: RunPlan | None = None
    expects: Expects | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the manifest as JSON values, without defaults."""
        return {"schema": self.schema_number, **self.model_dump(mode="json", exclude_defaults=True)}

    def text(self) -> str:
        """Return the JSON text, in short form: a manifest is read as a whole."""
        return json.dumps(self.as_json(), sort_keys=True) + "\n"


def read_manifest(data: FileBytes) -> Artefact:
    """Return the pieces of a manifest, as those of the artefacts that they were copied from.

    Their facts name that `artefact`, and the `sha256` that is checked when they are used. Raises
    ArtefactError for a file that is no manifest, and for files that are gone or of another size.
    """

    def side_file(name: str) -> Blob:
        folder = data.path.parent
        with FileBytes(folder / name, folder) as data_beside:
            return Blob(data_beside.path, 0, data_beside.size, name, root=folder)

    return read_at(data, 0, data.size, side_file)


def read_at(data: FileBytes, offset: int, size: int, locate: Callable[[str], Blob]) -> Artefact:
    """Return the artefact of the manifest at this place; `locate` finds a file that it names.

    It names files right beside it; only those of a model lie in folders. Raises ArtefactError.
    """
    try:
        manifest = parse_model(Manifest, data.read(offset, size, "the manifest"))
    except ValueError as error:
        problem = f"is not a manifest of `model extract`: {problem_in(error)}"
        raise data.error(problem, offset) from error
    places: dict[str, Blob] = {}

    def blob_of(entry: PieceEntry | TensorEntry | ModelFile, name: str) -> Blob:
        if why := name_problem(name, flat=not isinstance(entry, ModelFile)):
            problem = f"names the file {name[:200]!r}, which {why}; name a file in the same folder"
            raise data.error(problem, offset)
        place = places.get(name) or places.setdefault(name, locate(name))
        if place.size != entry.size:
            file = name if place.path == data.path else "it"
            problem = f"{file} has {place.size} bytes, but had {entry.size} when it was extracted"
            raise ArtefactError(problem, file=place.path, offset=place.offset)
        return place

    def piece(entry: PieceEntry) -> Piece:
        facts = {**entry.facts, "artefact": entry.artefact}
        if entry.file is None:
            return Piece(data.path, 0, 0, entry.origin, "empty", facts)
        facts["sha256"] = entry.sha256
        place = blob_of(entry, entry.file)
        inputs, expected = (
            tuple(blob_of(tensor, tensor.file) for tensor in tensors)
            for tensors in (entry.inputs, entry.expected)
        )
        position = place.path, place.offset, place.size, entry.origin
        return Piece(*position, entry.kind, facts, inputs, expected, root=place.root)

    pieces = tuple(map(piece, manifest.pieces))
    facts = {
        "model": tuple((entry, blob_of(entry, entry.file)) for entry in manifest.model),
        "plan": manifest.plan,
        "expects": manifest.expects,
    }
    return Artefact(data.path, "manifest", pieces, facts)


_CHUNK: Final = 1 << 20
# the local header of a file in a zip: its size, and the lengths of the name and the extra field
_HEAD_BYTES: Final = 30
_LENGTHS: Final = struct.Struct("<26xHH")
# contexts may be as large as a disk, as nothing is unpacked
_LIMITS: Final = ArchiveLimits(
    members=1 << 15,
    directory_bytes=8 << 20,
    archive_bytes=1 << 50,
    total_bytes=1 << 50,
    ratio=1 << 50,
    zip64=True,
)


def read_bundle(data: FileBytes) -> Artefact | None:
    """Return the artefact of a bundle; None for a zip without manifest. Raises ArtefactError."""
    name = MANIFEST.encode()
    name_bytes = max(0, min(len(name), data.size - _HEAD_BYTES))
    head = data.read(_HEAD_BYTES if name_bytes else 0, name_bytes, "the name of the first file")
    if head != name:
        return None
    places: dict[str, Blob] = {}
    for file, offset, size in _files(data):
        if file in places:
            raise data.error(f"has the file {file!r} twice", offset)
        places[file] = Blob(data.path, offset, size, file, root=data.root)

    def inside(name: str) -> Blob:
        if name not in places:
            raise data.error(f"the manifest names {name!r}, which is not in the bundle", 0)
        return places[name]

    if MANIFEST not in places:
        raise data.error(f"the name of the first file is longer than {MANIFEST!r}", 0)
    manifest = places[MANIFEST]
    return replace(read_at(data, manifest.offset, manifest.size, inside), kind="bundle")


def _files(data: FileBytes) -> Iterator[tuple[str, int, int]]:
    try:
        with open_file(data.path, data.root) as file, open_archive(file, _LIMITS) as archive:
            members = archive.infolist()
    except (ArchiveError, OSError) as error:
        raise data.error(f"the zip cannot be read: {error}", 0) from error
    for member in members:
        name, offset = member.orig_filename, member.header_offset
        if problem := name_problem(name):
            raise data.error(f"the file {name[:200]!r} in the zip {problem}", offset)
        stored = member.compress_type == zipfile.ZIP_STORED
        if not stored or member.compress_size != member.file_size:
            raise data.error(
                f"{name!r} is compressed, but files of a bundle must be stored uncompressed", offset
            )
        lengths = _LENGTHS.unpack(data.read(offset, _HEAD_BYTES, f"the head of {name!r}"))
        content_offset = offset + _HEAD_BYTES + sum(lengths)
        data.require(content_offset, member.file_size, f"{name!r}")
        yield name, content_offset, member.file_size


def write_bundle(
    path: Path, manifest: Manifest, texts: Mapping[str, bytes], files: Mapping[str, Path]
) -> None:
    """Write a bundle of a manifest, the files that it names and texts for the receiver.

    Equal contents give equal bytes. The bundle is written whole or not at all. Raises ConfigError
    for a path that cannot be written, InfraError.
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
    """Return a zip entry without date, owner and system, which would identify the author."""
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = 0o644 << 16
    return entry
