"""What is inside an app: one APK, the APKs of a split set, or a bundle (.aab). Nothing is run."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from harness.app.manifest import (
    MAX_BYTES,
    AppManifest,
    read_binary_manifest,
    read_proto_manifest,
)
from harness.bench.provisioner import preflight_file
from harness.containers.artefact import (
    PIECE_MAGIC,
    Artefact,
    ArtefactError,
    FileBytes,
    Piece,
    named_version,
)
from harness.containers.open import LENGTH, ONNX_HEAD, WireField, fields, open_artefact
from harness.containers.pte import PTE_IDENTIFIER
from harness.containers.tflite import TFLITE_IDENTIFIER
from harness.core.archive import ArchiveError, ArchiveLimits, open_archive
from harness.core.errors import ConfigError
from harness.core.files import scratch_folder
from harness.core.json_record import Part as JsonPart, RecordText
from harness.core.paths_inside import create_inside, name_problem
from harness.models.context_metadata import Unreadable
from harness.runtimes.preflight import ContextFacts
from harness.runtimes.runtime import LibraryFacts, is_library, library_facts

# 32-bit numbers of zip; deflate packs 1032 : 1 at most
LIMITS: Final = ArchiveLimits(
    members=65_535, directory_bytes=16 << 20, archive_bytes=4 << 30, ratio=1100
)
MAX_LIBRARY_BYTES: Final = 512 << 20
_MANIFEST: Final = "AndroidManifest.xml"
_BUNDLE_CONFIG: Final = "BundleConfig.pb"
_BUNDLE_MANIFEST: Final = re.compile(r"([^/]+)/manifest/AndroidManifest\.xml")
_LIBRARY: Final = re.compile(r"lib/([^/]+)/.+")
_ASSETS: Final = ("assets/", "res/raw/")
_ASKS_QNN: Final = re.compile(rb"\bQnn(?:System)?Interface_getProviders\0")
_NEWER_CONTEXT: Final = PIECE_MAGIC["context"] + b"\0\0\0\3"

Answers = Sequence[Mapping[str, Any] | Unreadable]


class Place(JsonPart):
    """A place in an app: a file of it, an entry of that archive, and its line if there is one."""

    file: RecordText
    entry: RecordText
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.entry}" + ("" if self.line is None else f", line {self.line}")


@dataclass(frozen=True)
class Part:
    """An APK, or a module of a bundle."""

    place: Place
    manifest: AppManifest


@dataclass(frozen=True)
class AppLibrary:
    """A library; `path` is its name in an APK.

    `offset` is that of its bytes in the archive, None in a bundle, whose APKs are made later.
    `asks_qnn`: it looks for QNN's interface, as whatever uses QNN does.
    """

    place: Place
    path: str
    facts: LibraryFacts
    sha256: str
    is_stored: bool = True
    offset: int | None = None
    asks_qnn: bool = False

    @property
    def abi(self) -> str | None:
        match = _LIBRARY.fullmatch(self.path)
        return match[1] if match else None

    @property
    def name(self) -> str:
        return self.facts.file_name


@dataclass(frozen=True)
class AppModel:
    """A model file with the contexts in it; `problem` says why it could not be read."""

    place: Place
    kind: str
    size: int
    is_stored: bool
    contexts: tuple[ContextFacts, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class BundleConfig:
    """How APKs are made of a bundle: unpacked libraries, and names of files that stay as they are.

    bundletool's config.proto; it overwrites extractNativeLibs by it.
    """

    stores_libraries: bool = True
    stored_globs: tuple[str, ...] = ()


@dataclass(frozen=True)
class App:
    """An app; the first part is its base."""

    parts: tuple[Part, ...]
    libraries: tuple[AppLibrary, ...] = ()
    models: tuple[AppModel, ...] = ()
    bundle: BundleConfig | None = None

    @property
    def base(self) -> Part:
        return self.parts[0]

    @property
    def extracts_libraries(self) -> bool:
        """Whether its libraries are files after the installation."""
        if self.bundle is not None:
            return not self.bundle.stores_libraries
        return self.base.manifest.extract_native_libs is not False


@dataclass
class _Found:
    parts: list[Part] = field(default_factory=list)
    libraries: list[AppLibrary] = field(default_factory=list)
    models: list[tuple[AppModel, Artefact | None]] = field(default_factory=list)
    bundle: BundleConfig | None = None


def read_app(files: Sequence[Path], read_contexts: Callable[[Sequence[Piece]], Answers]) -> App:
    """Read an app. `read_contexts` reads the metadata of context binaries.

    Raises ConfigError for what is no app, or not one app, and what `read_contexts` raises.
    """
    found = _Found()
    with scratch_folder() as folder:
        for number, path in enumerate(files):
            _read_file(path, folder / str(number), found)
        models = tuple(_with_contexts(found.models, read_contexts))
    parts = sorted(found.parts, key=lambda part: part.manifest.split != "")
    _require_one_app(parts, len(files), is_bundle=found.bundle is not None)
    return App(tuple(parts), tuple(found.libraries), models, found.bundle)


def _require_one_app(parts: Sequence[Part], file_count: int, *, is_bundle: bool) -> None:
    base = parts[0]
    if base.manifest.split:
        problem = f"is the split {base.manifest.split!r}; name the app's base APK, too"
        raise ConfigError(problem, file=base.place.file)
    for part in parts[1:]:
        other = part.manifest
        if is_bundle and file_count > 1:
            raise ConfigError("is a bundle; name nothing beside it", file=base.place.file)
        if other.package != base.manifest.package or not (other.split or is_bundle):
            problem = (
                f"has the package {other.package!r} and the split {other.split!r}: it is no split "
                f"of {base.manifest.package!r} in {base.place.file}"
            )
            raise ConfigError(problem, file=part.place.file)


def _read_file(path: Path, folder: Path, found: _Found) -> None:
    try:
        with path.open("rb") as file, open_archive(file, LIMITS) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            names = {member.filename: member for member in members}
            if len(names) < len(members):
                raise ValueError("a name is there twice")
            content = partial(_content, archive, names)
            folder.mkdir()
            modules = [match[1] for match in map(_BUNDLE_MANIFEST.fullmatch, names) if match]
            if _BUNDLE_CONFIG in names and modules:
                config = folder / _BUNDLE_CONFIG
                config.write_bytes(content(_BUNDLE_CONFIG))
                found.bundle = _bundle_config(config)
                for module in sorted(modules, key=lambda module: module != "base"):
                    entry = f"{module}/manifest/{_MANIFEST}"
                    copy = folder / _MANIFEST
                    copy.write_bytes(content(entry))
                    manifest = read_proto_manifest(copy, path)
                    manifest = manifest if module == "base" else replace(manifest, split=module)
                    found.parts.append(Part(Place(file=path.name, entry=entry), manifest))
            elif _MANIFEST in names:
                manifest = read_binary_manifest(content(_MANIFEST), path)
                found.parts.append(Part(Place(file=path.name, entry=_MANIFEST), manifest))
            else:
                problem = "has no AndroidManifest.xml: it is neither an APK nor a bundle (.aab)"
                raise ConfigError(problem, file=path)
            for member in members:
                _read_member(path, file, archive, member, folder, found)
            _open_models(folder, found)
    except (ArchiveError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot be read as an APK or a bundle: {reason}", file=path) from error


def _content(archive: zipfile.ZipFile, names: Mapping[str, zipfile.ZipInfo], entry: str) -> bytes:
    if names[entry].file_size > MAX_BYTES:
        raise ValueError(f"{entry[:120]} has more than {MAX_BYTES} bytes")
    return archive.read(names[entry])


def _bundle_config(path: Path) -> BundleConfig:
    with FileBytes(path) as data:
        whole = WireField(0, LENGTH, 0, 0, data.size)
        enabled = [part.value for part in _nested(data, whole, (2, 2, 1))]
        globs = [
            data.read(part.offset, part.size, "a glob").decode("utf-8", "replace")
            for part in _nested(data, whole, (3, 1))
        ]
        # without the message it is on, since bundletool 0.6
        absent = not list(_nested(data, whole, (2, 2)))
    return BundleConfig(absent or any(enabled), tuple(globs))


def _nested(data: FileBytes, part: WireField, path: tuple[int, ...]) -> Iterator[WireField]:
    for inner in fields(data, part.offset, part.size, "the bundle's configuration"):
        if inner.number == path[0]:
            if len(path) == 1:
                yield inner
            else:
                yield from _nested(data, inner, path[1:])


def _read_member(
    path: Path,
    file: IO[bytes],
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    folder: Path,
    found: _Found,
) -> None:
    entry, bundle = member.filename, found.bundle
    inner = entry.partition("/")[2] if bundle else entry
    place, is_stored = (
        Place(file=path.name, entry=entry),
        member.compress_type == zipfile.ZIP_STORED,
    )
    offset = None if bundle else _offset(file, member)
    if _LIBRARY.fullmatch(inner) or (inner.startswith(_ASSETS) and is_library(inner)):
        facts, digest, asks = LibraryFacts(entry, "other", problem="it is too large"), "", False
        if member.file_size <= MAX_LIBRARY_BYTES:
            content = archive.read(member)
            facts, digest = library_facts(entry, content), hashlib.sha256(content).hexdigest()
            asks = facts.kind == "ort-plugin" or bool(_ASKS_QNN.search(content))
        if facts.elf is None and not is_library(inner):
            return  # a note or a checksum
        library = AppLibrary(place, inner, facts, digest, is_stored, offset, asks)
        found.libraries.append(library)
    elif inner.startswith(_ASSETS) and name_problem(entry) is None:
        with archive.open(member) as stream:
            if not _is_model(inner, stream.read(16)):
                return
        with archive.open(member) as stream, create_inside(folder / "models", entry) as copy:
            shutil.copyfileobj(stream, copy)
        if bundle:
            is_stored = any(fnmatchcase(inner, glob) for glob in bundle.stored_globs)
        suffix = PurePosixPath(entry).suffix.removeprefix(".").lower()
        found.models.append((AppModel(place, suffix, member.file_size, is_stored), None))


def _offset(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    file.seek(member.header_offset + 26)
    name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + int(name_bytes) + int(extra_bytes)


def _is_model(name: str, head: bytes) -> bool:
    if head[4:8] in (PTE_IDENTIFIER, TFLITE_IDENTIFIER) or head.startswith(_NEWER_CONTEXT):
        return True
    magic = {".bin": PIECE_MAGIC["context"], ".dlc": PIECE_MAGIC["dlc"], ".onnx": ONNX_HEAD}
    suffix = PurePosixPath(name).suffix.lower()
    return suffix in magic and head.startswith(magic[suffix])


def _open_models(folder: Path, found: _Found) -> None:
    """Open the models of one file; the one of them may name the context in another."""
    for index, (model, artefact) in enumerate(found.models):
        copy = folder / "models" / model.place.entry
        if artefact is not None or model.problem or not copy.exists():
            continue
        try:
            artefact = open_artefact(copy, folder)
            found.models[index] = replace(model, kind=str(artefact.kind)), artefact
        except ArtefactError as error:
            found.models[index] = replace(model, problem=error.problem), None


def _with_contexts(
    models: Sequence[tuple[AppModel, Artefact | None]],
    read_contexts: Callable[[Sequence[Piece]], Answers],
) -> Iterator[AppModel]:
    def contexts_of(artefact: Artefact | None) -> list[Piece]:
        return [piece for piece in (artefact.pieces if artefact else ()) if piece.kind == "context"]

    sides = {
        piece.path
        for _, artefact in models
        for piece in (artefact.pieces if artefact else ())
        if artefact and piece.path != artefact.path
    }
    models = [pair for pair in models if not (pair[1] and pair[1].path in sides)]
    pieces = [piece for _, artefact in models for piece in contexts_of(artefact)]
    answers = iter(read_contexts(pieces) if pieces else ())
    for model, artefact in models:
        contexts, problem = [], model.problem
        for piece in contexts_of(artefact):
            answer = next(answers)
            if isinstance(answer, Unreadable):
                problem, answer = answer.reason, {}
            context = preflight_file(model.place.entry, answer)
            if context.compiler is None and piece.path.stat().st_size == piece.size:
                context = replace(context, compiler=named_version(piece.path))
            contexts.append(context)
        yield replace(model, contexts=tuple(contexts), problem=problem)
