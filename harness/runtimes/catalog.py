"""Catalog of QNN runtimes by version and target, from PyPI and the sources of a lab."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from harness.core.errors import ConfigError, VersionError, plugin_faults
from harness.core.versions import QNN_WHEELS, QnnVersion
from harness.lab.config_fields import PACKAGE_INDEX
from harness.lab.inventory import Lab
from harness.runtimes.aar import AarSource
from harness.runtimes.local_sources import FolderSource, SdkSource, sdk_of_environment, sdks_in
from harness.runtimes.ort import BESIDE_ORT, OrtLibraries
from harness.runtimes.pypi import (
    ORT_HOST_VERSION,
    PYPI,
    QNN_PLATFORMS,
    CompilerHost,
    PyPiSource,
    WheelCache,
    all_versions,
    ort_folder,
    require_compiling_host,
)
from harness.runtimes.qairt_url import COMMUNITY_URL, QAIRT, QairtUrlSource
from harness.runtimes.runtime import LibrarySource, Runtime
from harness.runtimes.version_specs import choose, choose_all, is_path, names, split_specs

SDK_NAME: Final = "sdk"
"""Name of the tree at QAIRT_SDK_ROOT or QNN_SDK_ROOT."""


@dataclass(frozen=True)
class CatalogEntry:
    """One available runtime: its name in options, its source and version of QNN."""

    name: str
    source: str
    qnn: str
    target: str
    cached: bool


class Catalog:
    """Runtimes by version, fetched on first use and kept below the cache.

    They come from PyPI, and from `sources`, which have precedence.
    """

    def __init__(self, cache_root: Path, *, sources: Iterable[LibrarySource] = ()) -> None:
        self._cache_root = cache_root
        self.wheels = WheelCache(cache_root)
        self.pypi = PyPiSource(self.wheels)
        self.ort = OrtLibraries(self.wheels, cache_root)
        self._sources: dict[str, LibrarySource] = {}
        for source in (*sources, self.pypi):
            self.add(source)
        self._hosts: dict[str, CompilerHost] = {}
        self._by_path: dict[Path, LibrarySource] = {}

    @classmethod
    def of(cls, lab: Lab, environment: Mapping[str, str], cache_root: Path) -> Self:
        """Return the catalog of a lab: its `runtimes`, the environment's SDK, Qualcomm's, and PyPI.

        Nothing is opened yet. Raises ConfigError for invalid coordinates.
        """
        sources = []
        for entry in lab.runtimes:
            with plugin_faults(entry, "open", field=f"runtimes.{entry.name}"):
                source = entry.open(lab.folder, cache_root)
                if not isinstance(source, LibrarySource):
                    raise TypeError(f"returned {source!r}, not a LibrarySource")
            sources.append(source)
        sdk = sdk_of_environment(environment)
        if sdk is not None and SDK_NAME not in {source.name for source in sources}:
            variable, path = sdk
            path = path.expanduser().absolute()
            sources.append(SdkSource(SDK_NAME, path, cache_root, field=variable))
        if QAIRT not in {source.name for source in sources}:
            sources.append(QairtUrlSource(QAIRT, COMMUNITY_URL, cache_root))
        return cls(cache_root, sources=sources)

    def add(self, source: LibrarySource) -> None:
        """Add a source after the others. Raises ConfigError for a name that is in use."""
        if source.name in self._sources:
            raise ConfigError(f"two sources of runtimes have the name {source.name!r}")
        self._sources[source.name] = source

    @property
    def sources(self) -> list[LibrarySource]:
        return list(self._sources.values())

    def versions(self, target: str) -> list[str]:
        """Return the runtimes for a target, oldest first. Raises ConfigError without any."""
        return choose("all", self._known(target))

    def resolve(self, spec: str, target: str, *, field: str | None = None) -> list[str]:
        """Return the names of the runtimes that `spec` means for a target, in order, each once.

        It is a comma list of versions (2.51.0), short forms that match only one (2.48 for 2.48.40),
        ranges (>=2.48,<2.51), `latest` and `all`. Each is of any source, or of the source whose
        name is its prefix (sdk:latest). The path of a source means all of its versions. Raises
        ConfigError naming `field` and the choices.
        """
        resolved: dict[str, None] = {}
        for part in split_specs(spec):
            if is_path(part):
                resolved.update(dict.fromkeys(self._resolve_path(part, target, field)))
                continue
            if part in self.pypi.versions(target):
                resolved[part] = None  # even if another source fails
                continue
            source, colon, rest = part.partition(":")
            if colon and source in self._sources:
                versions = _versions_in(self._sources[source], rest, target, field)
                resolved.update(dict.fromkeys(names({source: versions}, PYPI)))
                continue
            try:
                resolved.update(dict.fromkeys(choose(part, self._known(target), field=field)))
            except ConfigError as error:
                raise type(error)(error.problem, field=field, choices=error.choices) from error
        return list(resolved)

    def entries_of(self, source: LibrarySource, target: str) -> list[CatalogEntry]:
        """Return every runtime that a source has for a target. Raises as `LibrarySource`."""
        return [
            CatalogEntry(name, source.name, version, target, source.is_cached(version, target))
            for name, version in names({source.name: source.versions(target)}, PYPI).items()
        ]

    def is_same(self, name: str, other: str, targets: Iterable[str]) -> bool:
        """Return whether two names mean the same runtime, for all targets that have `name`."""
        for target in targets:
            with contextlib.suppress(ConfigError):
                if (runtime := self._find(name, target)) and self._find(other, target) != runtime:
                    return False
        return True

    def is_cached(self, name: str, target: str) -> bool:
        """Return whether a runtime is available without fetching anything. Raises ConfigError."""
        source, version = self._find(name, target)
        return source.is_cached(version, target)

    def runtime(self, name: str, target: str) -> Runtime:
        """Return the runtime of an exact name, fetched if need be. Raises HarnessError."""
        source, version = self._find(name, target)
        return source.runtime(version, target)

    def with_ort(self, name: str, ort: str | None, target: str) -> Runtime:
        """Join a runtime and an ORT (of `ort.resolve`; None: its own or the default one).

        The plug-in of the same QNN is added if the runtime is from PyPI. Raises as `runtime`, and
        ConfigError if the two cannot be used together.
        """
        source, version = self._find(name, target)
        files = self.pypi.folder(version, target).files.values() if source is self.pypi else ()
        companions = [file for file in files if file.path.name in BESIDE_ORT]
        return self.ort.join(source.runtime(version, target), ort, companions)

    def damage(self, name: str, target: str) -> list[str]:
        source, version = self._find(name, target)
        return source.damage(version, target)

    def compiler_host(self, version: str) -> CompilerHost:
        """Return the compiler of an exact QNN version here. Raises ConfigError, InfraError."""
        if version not in self._hosts:
            require_compiling_host()
            ort_root = ort_folder(self.wheels).path
            qnn_root = self.pypi.folder(version, "linux-x64").path
            self._hosts[version] = CompilerHost(version, ORT_HOST_VERSION, ort_root, qnn_root)
        return self._hosts[version]

    def compiler_for(self, name: str, target: str) -> str:
        """Return the QNN version that compiles contexts for a runtime by default.

        It is the runtime's own if PyPI has it, else the newest older one: contexts of a newer
        version would be refused. Raises ConfigError if there is none, or the runtime is unknown.
        """
        _, version = self._find(name, target)
        if version in QNN_WHEELS:
            return version
        runtime = QnnVersion.parse(version.split("_")[0])
        for compiler in reversed(all_versions()):
            if not QnnVersion.parse(compiler).is_newer_than(runtime):
                return compiler
        problem = f"no compiler of QNN {version} or older is available for {name}; name one"
        raise VersionError(problem, field="--compiler", choices=all_versions())

    def _resolve_path(self, text: str, target: str, field: str | None) -> list[str]:
        path = Path(text).expanduser().absolute()
        try:
            if path not in self._by_path:
                self._by_path[path] = source_at(path, self._sources, self._cache_root)
                self.add(self._by_path[path])
            source = self._by_path[path]
            versions = source.versions(target)
        except ConfigError as error:
            raise type(error)(error.problem, field=field, choices=error.choices) from error
        if not versions:
            raise VersionError(f"{path} has no QNN libraries for {target}", field=field)
        return list(names({source.name: versions}, PYPI))

    def _known(self, target: str) -> dict[str, str]:
        listed = {name: source.versions(target) for name, source in self._sources.items()}
        if not (known := names(listed, PYPI)):
            raise ConfigError(
                f"no source has QNN libraries for {target}; name an SDK, as in --qnn "
                f"{QAIRT}:{QairtUrlSource.example}, or add a source to `runtimes` of devices.yaml",
                choices=QNN_PLATFORMS,
            )
        return known

    def _find(self, name: str, target: str) -> tuple[LibrarySource, str]:
        prefix, colon, version = name.partition(":")
        if colon and prefix in self._sources:
            source = self._sources[prefix]
            if source.has(version, target):
                return source, version
        elif name in self.pypi.versions(target):
            return self.pypi, name
        else:
            for source in self._sources.values():
                if name in source.versions(target):
                    return source, name
        choices = choose("all", self._known(target))
        raise VersionError(f"unknown QNN version {name[:80]!r}", choices=choices)


def _versions_in(source: LibrarySource, spec: str, target: str, field: str | None) -> Sequence[str]:
    if source.has(spec, target):
        return [spec]
    known, example = source.versions(target), source.example
    other = f"; name a whole version, as in {source.name}:{example}" if example else ""
    if not known:
        where = " in the cache" if example else ""
        problem = f"{source.name} has no QNN libraries for {target}{where}{other}"
        raise VersionError(problem, field=field)
    try:
        return choose_all(spec, known, field=field)
    except ConfigError as error:
        raise type(error)(error.problem + other, field=field, choices=error.choices) from error


def resolve_versions(spec: str, *, field: str | None = None) -> list[str]:
    """Return PyPI's exact QNN versions that a `spec` means; see `Catalog.resolve` (pure)."""
    return choose_all(spec, all_versions(), field=field)


def choose_runtimes(
    resolve: Callable[[str, str], Sequence[str]], specs: Sequence[str], targets: Iterable[str]
) -> tuple[dict[str, dict[str, None]], dict[str, list[str]]]:
    """Return by target the runtimes of `specs`, and the reasons why specs have none.

    `resolve` returns the names for a spec and a target, as `Catalog.resolve`. Raises its
    ConfigError for a spec that has none for any target.
    """
    unique = list(dict.fromkeys(targets))
    runtimes: dict[str, dict[str, None]] = {target: {} for target in unique}
    reasons: dict[str, list[str]] = {target: [] for target in unique}
    for spec in specs:
        errors: list[ConfigError] = []
        for target in unique:
            try:
                runtimes[target].update(dict.fromkeys(resolve(spec, target)))
            except ConfigError as error:
                errors.append(error)
                reasons[target].append(f"for {target}: {error}")
        if errors and len(errors) == len(unique):
            raise next((each for each in errors if isinstance(each, VersionError)), errors[0])
    return runtimes, reasons


def source_at(path: Path, used_names: Collection[str], cache_root: Path) -> LibrarySource:
    """Return the source at a path: an AAR, a QAIRT tree or a plain folder.

    Its name is made from the path's last part, and is none of `used_names`. Raises ConfigError if
    there is nothing of that kind.
    """
    path = path.expanduser().absolute()
    plain = re.sub(r"[^a-z0-9._-]+", "-", path.name.removesuffix(".aar").lower()).strip("-.")
    plain = plain[:40] or "folder"
    numbered = (f"{plain}-{number}" for number in itertools.count(2))
    candidates = itertools.chain([plain], numbered)
    name = next(name for name in candidates if name not in {*used_names, PACKAGE_INDEX})
    if path.is_file() and path.suffix.lower() == ".aar":
        return AarSource(name, path, cache_root)
    if not path.is_dir():
        problem = "is neither a folder nor an AAR" if path.exists() else "does not exist"
        raise ConfigError(f"{path} {problem}")
    if sdks_in(path):
        return SdkSource(name, path, cache_root)
    return FolderSource(name, path, cache_root)
