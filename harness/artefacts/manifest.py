"""manifest.json: what was copied out of which artefacts, so that it can be handed in again."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.artefacts.artefact import Artefact, Piece, PieceKind
from harness.artefacts.file_bytes import FileBytes

MANIFEST: Final = "manifest.json"
MANIFEST_HEAD: Final = b"{"

_MAX_PIECES: Final = 1 << 14


class PieceEntry(BaseModel):
    """One piece: its file beside the manifest (none if it was empty), and where it came from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str | None
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None
    kind: PieceKind
    artefact: str
    origin: str
    facts: dict[str, Any]


class Manifest(BaseModel):
    """The pieces in the order in which a runtime would load them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    pieces: Annotated[tuple[PieceEntry, ...], Field(max_length=_MAX_PIECES)]


def read_manifest(data: FileBytes) -> Artefact:
    """The pieces that a manifest lists, as those of the artefacts that they were copied from.

    Their facts name that `artefact`, and the `sha256` that is compared when they are used. Raises
    ArtefactError for what is no manifest, and for files that are gone or of another size.
    """
    try:
        content = json.loads(data.at(0, data.size, "the manifest"))
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        problem = f"is no manifest of `contexts extract`: {field}: {first['msg']}"
        raise data.error(problem, 0) from error
    except (ValueError, RecursionError) as error:
        raise data.error(f"is no JSON: {error}", 0) from error
    pieces = tuple(_piece(data, entry) for entry in manifest.pieces)
    artefacts = list(dict.fromkeys(entry.artefact for entry in manifest.pieces))
    return Artefact(data.path, "manifest", pieces, {"artefacts": artefacts})


def _piece(data: FileBytes, entry: PieceEntry) -> Piece:
    facts = {**entry.facts, "artefact": entry.artefact}
    if entry.file is None:
        return Piece(data.path, 0, 0, entry.origin, "empty", facts)
    named = PurePosixPath(entry.file)
    if len(named.parts) != 1 or named.is_absolute() or named.name == ".." or "\0" in entry.file:
        raise data.error(f"names the file {entry.file!r}, which is not beside it", 0)
    path = data.path.parent / named
    with FileBytes(path) as found:
        if found.size != entry.size:
            raise found.error(f"has {found.size} bytes, {entry.size} when it was extracted", 0)
    facts["sha256"] = entry.sha256
    return Piece(path, 0, entry.size, entry.origin, entry.kind, facts)
