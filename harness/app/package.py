"""What is inside an app: one APK, the APKs of a split set, or a bundle (.aab). Nothing is run."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from harness.app.manifest import AppManifest, read_binary_manifest, read_proto_manifest
from harness.bench.provisioner import preflight_piece
from harness.containers.artefact import (
    PIECE_MAGIC,
    Artefact,
    ArtefactError,
    FileBytes,
    Piece,
)
from harness.containers.open import LENGTH, ONNX_HEAD, WireField, nested, open_artefact, text_of
from harness.containers.pte import PTE_IDENTIFIER
from harness.containers.tflite import TFLITE_IDENTIFIER
from harness.core.archive import ArchiveError, ArchiveLimits, open_archive
from harness.core.errors import ConfigError
from harness.core.files import open_regular, scratch_folder
from harness.core.json_record import Part as JsonPart, RecordText
from harness.core.paths_inside import create_inside, name_problem
from harness.models.context_metadata import Unreadable
from harness.runtimes.preflight import ContextFacts
from harness.runtimes.runtime import LibraryFacts, is_library, library_facts

ABI: Final = "arm64-v8a"
# without zip64; deflate packs 1032 : 1 at most
LIMITS: Final = ArchiveLimits(
    members=65_535, directory_bytes=16 << 20, archive_bytes=4 << 30, ratio=1100
)
MAX_LIBRARY_BYTES: Final = 512 << 20
MAX_MANIFEST_BYTES: Final = 1 << 20
_MANIFEST: Final = "AndroidManifest.xml"
_BUNDLE_CONFIG: Final = "BundleConfig.pb"
_BUNDLE_MANIFEST: Final = re.compile(r"([^/]+)/manifest/AndroidManifest\.xml")
_LIBRARY: Final = re.compile(r"lib/([^/]+)/.+")
# release builds shorten res/raw/model.tflite to res/a1.tflite
_ASSETS: Final = ("assets/", "res/")
_ASKS_QNN: Final = re.compile(rb"\bQnn(?:System)?Interface_getProviders\0")
_SKEL_PATH: Final = b"ADSP_LIBRARY_PATH"
_CODE: Final = re.compile(r"(?:dex/)?[^/]+\.dex|assets/.*/global-metadata\.dat")
"""Code beside libraries: of Java, and of Unity."""
_NEWER_CONTEXT: Final = PIECE_MAGIC["context"] + b"\0\0\0\3"

Answers = Sequence[Mapping[str, Any] | Unreadable]


class Place(JsonPart):
    """A place in an app: a file of it, and an entry of that archive."""

    file: RecordText
    entry: RecordText

    def __str__(self) -> str:
        return f"{self.file}: {self.entry}"


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

    @property
    def machine(self) -> str | None:
        return self.facts.elf.machine if self.facts.elf else None


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
class App:
    """An app; the first part is its base. `extracts_libraries`: they are files once installed.

    `names_skel_path`: its code has the name of the variable for the folders of skels.
    """

    parts: tuple[Part, ...]
    libraries: tuple[AppLibrary, ...]
    models: tuple[AppModel, ...]
    extracts_libraries: bool
    names_skel_path: bool

    @property
    def manifest(self) -> AppManifest:
        return self.parts[0].manifest

    @property
    def is_bundle(self) -> bool:
        return self.parts[0].place.entry != _MANIFEST

    @cached_property
    def native(self) -> list[AppLibrary]:
        """The libraries for phones, and skels among assets; of each name the first."""
        skels = [lib for lib in self.libraries if lib.abi is None and lib.facts.kind == "skel"]
        phones = [lib for lib in self.libraries if lib.abi == ABI]
        return list({lib.name: lib for lib in reversed([*phones, *skels])}.values())


def read_app(files: Sequence[Path], read_contexts: Callable[[Sequence[Piece]], Answers]) -> App:
    """Read an app. `read_contexts` reads the metadata of context binaries.

    Raises ConfigError for what is no app, or not one app, and what `read_contexts` raises.
    """
    with scratch_folder() as folder:
        readers = [_Reader(path, folder / str(number)) for number, path in enumerate(files)]
        models = tuple(_with_contexts(readers, read_contexts))
    parts = [part for reader in readers for part in reader.parts]
    parts.sort(key=lambda part: part.manifest.split != "")
    base = parts[0].manifest
    bundle = next((reader for reader in readers if reader.is_bundle), None)
    bases = [part for part in parts if not part.manifest.split]
    packages = {part.manifest.package for part in parts}
    if len(bases) != 1 or len(packages) > 1 or (bundle and len(files) > 1):
        names = (f"{part.place.file} ({part.manifest})" for part in parts)
        wrong = "these are not one app; name one base APK with its splits, or one bundle"
        problem = (
            f"{', '.join(names)}: {wrong if bases else 'the base APK is missing; name it, too'}"
        )
        raise ConfigError(problem, field="FILE")
    extracts = base.extract_native_libs is not False
    if bundle:  # bundletool overwrites the attribute
        extracts = not bundle.stores_libraries
    libraries = tuple(library for reader in readers for library in reader.libraries)
    names_skel_path = any(reader.names_skel_path for reader in readers)
    return App(tuple(parts), libraries, models, extracts, names_skel_path)


class _Reader:
    """Reads one file; models are copied into `folder`, since their readers want files.

    `stores_libraries` and `stored_globs` are what bundletool makes APKs by (its config.proto).
    """

    def __init__(self, path: Path, folder: Path) -> None:
        """Read all but the content of models. Raises ConfigError."""
        self.path, self.folder, self.models_folder = path, folder, folder / "models"
        self.parts: list[Part] = []
        self.libraries: list[AppLibrary] = []
        self.models: list[AppModel] = []
        self.is_bundle = self.stores_libraries = self.names_skel_path = False
        self.stored_globs: tuple[str, ...] = ()
        self.models_folder.mkdir(parents=True)
        try:
            with open_regular(path) as file, open_archive(file, LIMITS) as archive:
                members = [member for member in archive.infolist() if not member.is_dir()]
                names = {member.filename for member in members}
                if len(names) < len(members):
                    raise ValueError("two of its files have the same name")
                self._read_manifests(archive, names)
                for member in members:
                    self._read_member(file, archive, member)
        except (ArchiveError, ArtefactError, OSError) as error:
            reason = getattr(error, "problem", None) or getattr(error, "strerror", None) or error
            problem = f"cannot be read as an APK or a bundle: {reason}"
            raise ConfigError(problem, file=path) from error

    def _read_manifests(self, archive: zipfile.ZipFile, names: set[str]) -> None:
        modules = list(filter(None, map(_BUNDLE_MANIFEST.fullmatch, names)))
        self.is_bundle = _BUNDLE_CONFIG in names and bool(modules)
        if self.is_bundle:
            self._read_config(self._copied(archive, _BUNDLE_CONFIG))
            for module in modules:
                manifest = read_proto_manifest(self._copied(archive, module[0]))
                split = "" if module[1] == "base" else module[1]
                self.parts.append(Part(self._place(module[0]), replace(manifest, split=split)))
        elif {_MANIFEST, "classes.jar"} <= names:
            raise ValueError("it is an Android library (AAR); name an app that packs it")
        elif _MANIFEST in names:
            manifest = read_binary_manifest(self._copied(archive, _MANIFEST).read_bytes())
            self.parts.append(Part(self._place(_MANIFEST), manifest))
        elif any(name.endswith(".apk") for name in names):
            raise ValueError("it is a set of APKs; unpack it, and name those for one phone")
        else:
            raise ValueError("it has no AndroidManifest.xml")

    def _read_config(self, path: Path) -> None:
        with FileBytes(path) as data:
            whole = WireField(0, LENGTH, 0, 0, data.size)
            flags = [flag.value for flag in nested(data, whole, 2, 2, 1)]
            # without the message it is on, since bundletool 0.6
            self.stores_libraries = any(flags) or not any(nested(data, whole, 2, 2))
            self.stored_globs = tuple(text_of(data, glob) for glob in nested(data, whole, 3, 1))

    def _copied(self, archive: zipfile.ZipFile, entry: str) -> Path:
        member = archive.getinfo(entry)
        if member.file_size > MAX_MANIFEST_BYTES:
            raise ValueError(f"{entry[:120]} has more than {MAX_MANIFEST_BYTES} bytes")
        copy = self.folder / "copy"
        copy.write_bytes(archive.read(member))
        return copy

    def _place(self, entry: str) -> Place:
        return Place(file=self.path.name, entry=entry)

    def _read_member(
        self, file: IO[bytes], archive: zipfile.ZipFile, member: zipfile.ZipInfo
    ) -> None:
        entry, place = member.filename, self._place(member.filename)
        path = entry.partition("/")[2] if self.is_bundle else entry
        is_stored = member.compress_type == zipfile.ZIP_STORED
        in_assets = path.startswith(_ASSETS)
        if _LIBRARY.fullmatch(path) or (in_assets and is_library(path)):
            offset = None if self.is_bundle else _offset(file, member)
            facts, digest, asks = LibraryFacts(entry, "other", problem="it is too large"), "", False
            if member.file_size <= MAX_LIBRARY_BYTES:
                content = archive.read(member)
                facts, digest = library_facts(entry, content), hashlib.sha256(content).hexdigest()
                asks = bool(_ASKS_QNN.search(content))
                self.names_skel_path |= _SKEL_PATH in content
            library = AppLibrary(place, path, facts, digest, is_stored, offset, asks)
            self.libraries.append(library)
        elif _CODE.fullmatch(path):
            is_short = member.file_size <= MAX_LIBRARY_BYTES
            self.names_skel_path |= is_short and _SKEL_PATH in archive.read(member)
        elif in_assets and name_problem(entry) is None:
            with archive.open(member) as stream:
                if not _is_model(path, stream.read(16)):
                    return
            folder = self.models_folder
            with archive.open(member) as stream, create_inside(folder, entry) as copy:
                shutil.copyfileobj(stream, copy)
            if self.is_bundle:
                is_stored = any(fnmatchcase(path, glob) for glob in self.stored_globs)
            suffix = PurePosixPath(entry).suffix.removeprefix(".").lower()
            self.models.append(AppModel(place, suffix, member.file_size, is_stored))


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


def _with_contexts(
    readers: Sequence[_Reader], read_contexts: Callable[[Sequence[Piece]], Answers]
) -> Iterator[AppModel]:
    """Yield the models with their contexts, without files that another model names."""
    opened = [_open(model, reader.models_folder) for reader in readers for model in reader.models]
    artefacts = [artefact for _, artefact in opened if artefact]
    sides = {piece.path for it in artefacts for piece in it.pieces if piece.path != it.path}
    kept = [
        (model, [piece for piece in it.pieces if piece.kind == "context"] if it else [])
        for model, it in opened
        if it is None or it.path not in sides
    ]
    pieces = [piece for _, found in kept for piece in found]
    answers = iter(read_contexts(pieces) if pieces else ())
    for model, found in kept:
        contexts, problem = [], model.problem
        for piece, answer in zip(found, answers, strict=False):
            if isinstance(answer, Unreadable):
                problem = answer.reason
            contexts.append(preflight_piece(model.place.entry, piece, answer))
        yield replace(model, contexts=tuple(contexts), problem=problem)


def _open(model: AppModel, folder: Path) -> tuple[AppModel, Artefact | None]:
    try:
        artefact = open_artefact(folder / model.place.entry, folder)
    except ArtefactError as error:
        return replace(model, problem=error.problem), None
    return replace(model, kind=str(artefact.kind)), artefact
