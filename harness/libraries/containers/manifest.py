"""manifest.json: contexts as files beside it, where they came from, and how they are to be run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from harness.ground.files.bounded_json import parse_model, problem_in
from harness.ground.files.names_inside import name_problem
from harness.ground.files.schema_field import Schema1
from harness.libraries.containers.artefact import Artefact, ArtefactError, Blob, Piece, PieceKind
from harness.libraries.containers.file_bytes import FileBytes

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
    """One piece: its file beside the manifest (none if it was empty), and where it came from.

    Several may have one file. Without `inputs` some are made up when it runs; without `expected` it
    is not known what it should give.
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
    """A file that a case was run with: of its model, or a tensor of `inputs` or `expected`."""

    file: Annotated[str, Field(pattern="^(model|inputs|expected)/.")]
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


# packed outputs of a model on the CPU are files then
_AGAINST: Final = re.compile(r" of [^;]{1,100}? is asked")
_Limit = Annotated[float | None, Field(allow_inf_nan=False)]


class RunPlan(BaseModel, extra="forbid", frozen=True):
    """How the pieces, or the model, were run. Whoever runs them again may say otherwise.

    Of the versions `qnn` and `backend` are those that ran, `build_id` what its libraries said. The
    limits are what was asked of each output.
    """

    engine: Literal["qnn", "ort", "executorch", "litert"] = "qnn"
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


class Expects(BaseModel, extra="forbid", frozen=True):
    """How the run ended that was packed. A run of what was packed should end so, too."""

    outcome: Literal["passed", "failed", "crashed", "hung"]
    signature: str | None

    def met_by(self, outcome: str, signature: str | None) -> bool:
        """Whether a run that ended so came to the same, whatever its outputs were told against."""
        now, then = (_AGAINST.sub(" is asked", one or "") for one in (signature, self.signature))
        return (outcome, now) == (self.outcome, then)

    def __str__(self) -> str:
        return self.outcome if self.signature is None else f"{self.outcome}, {self.signature}"


class Manifest(BaseModel, extra="forbid", frozen=True):
    """The pieces in the order in which a runtime would load them.

    `model` are the files of what the case is of, the model itself first. Without pieces it is run.
    """

    schema_number: Schema1 = 1
    pieces: Annotated[tuple[PieceEntry, ...], Field(max_length=_MAX_PIECES)]
    model: Annotated[tuple[ModelFile, ...], Field(max_length=_MAX_TENSORS)] = ()
    plan: RunPlan | None = None
    expects: Expects | None = None

    def told(self) -> dict[str, Any]:
        """What its JSON says, without what is usual."""
        said = self.model_dump(mode="json", exclude_defaults=True)
        return {"schema": self.schema_number, **said}

    def text(self) -> str:
        """Its JSON, as short as it can be: a manifest is read as a whole."""
        return json.dumps(self.told(), sort_keys=True) + "\n"


def read_manifest(data: FileBytes) -> Artefact:
    """The pieces that a manifest lists, as those of the artefacts that they were copied from.

    Their facts name that `artefact`, and the `sha256` that is compared when they are used. Raises
    ArtefactError for what is no manifest, and for files that are gone or of another size.
    """

    def beside(name: str) -> Blob:
        folder = data.path.parent
        with FileBytes(folder / name, folder) as found:
            return Blob(found.path, 0, found.size, name, within=folder)

    return listed(data, 0, data.size, beside)


def listed(data: FileBytes, offset: int, size: int, find: Callable[[str], Blob]) -> Artefact:
    """What the manifest at this place of a file lists; `find` says where a file of it lies.

    It names files right beside it; only those of a model lie in folders. Raises ArtefactError.
    """
    try:
        manifest = parse_model(Manifest, data.at(offset, size, "the manifest"))
    except ValueError as error:
        problem = f"is no manifest of `contexts extract`: {problem_in(error)}"
        raise data.error(problem, offset) from error
    places: dict[str, Blob] = {}

    def found(entry: PieceEntry | TensorEntry | ModelFile, name: str) -> Blob:
        if why := name_problem(name, flat=not isinstance(entry, ModelFile)):
            problem = f"names the file {name[:200]!r}, which {why}; it names files beside it"
            raise data.error(problem, offset)
        place = places.get(name) or places.setdefault(name, find(name))
        if place.size != entry.size:
            where = name if place.path == data.path else "it"
            problem = f"{where} has {place.size} bytes, {entry.size} when it was extracted"
            raise ArtefactError(problem, file=place.path, offset=place.offset)
        return place

    def piece(entry: PieceEntry) -> Piece:
        facts = {**entry.facts, "artefact": entry.artefact}
        if entry.file is None:
            return Piece(data.path, 0, 0, entry.origin, "empty", facts)
        facts["sha256"] = entry.sha256
        place = found(entry, entry.file)
        return Piece(
            place.path,
            place.offset,
            place.size,
            entry.origin,
            entry.kind,
            facts,
            tuple(found(one, one.file) for one in entry.inputs),
            tuple(found(one, one.file) for one in entry.expected),
            within=place.within,
        )

    pieces = tuple(map(piece, manifest.pieces))
    artefacts = list(dict.fromkeys(entry.artefact for entry in manifest.pieces))
    model = tuple((one, found(one, one.file)) for one in manifest.model)
    told = {
        "artefacts": artefacts,
        "model": model,
        "plan": manifest.plan,
        "expects": manifest.expects,
    }
    return Artefact(data.path, "manifest", pieces, told)
