"""The QNN runtimes that can be had, by version and target, from what sources a user describes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from harness.core.errors import ConfigError, VersionError
from harness.core.local_file import LocalFile
from harness.core.verified_folder import VerifiedFolder
from harness.core.versions import QNN_WHEELS, QnnVersion
from harness.lab.fields import PACKAGE_INDEX, RuntimeSource
from harness.lab.inventory import Lab
from harness.runtimes.aar import AAR_TARGET, AarSource, MavenSource
from harness.runtimes.local_sources import (
    FolderSource,
    SdkSource,
    sdk_of_environment,
    sdks_in,
)
from harness.runtimes.maven_repository import QNN_RUNTIME, Coordinates
from harness.runtimes.ort import BESIDE_ORT, OrtLibraries, executorch_folder
from harness.runtimes.pypi import (
    ORT_HOST_VERSION,
    PYPI,
    QNN_PLATFORMS,
    CompilerHost,
    PyPiSource,
    UnpackedWheels,
    WheelCache,
    all_versions,
    ort_folder,
    require_compiling_host,
)
from harness.runtimes.runtime import LibrarySource, Runtime
from harness.runtimes.version_specs import choose, choose_all, is_path, names, split_specs

SDK_NAME: Final = "sdk"
"""What the tree is called that QAIRT_SDK_ROOT or QNN_SDK_ROOT names."""

Resolve = Callable[[str, str], Sequence[str]]
"""(spec, target) -> names of runtimes, as `Catalog.resolve`; raises ConfigError."""


@dataclass(frozen=True)
class CatalogEntry:
    """One runtime that can be had: what options call it, its source and version of QNN."""

    name: str
    source: str
    qnn: str
    target: str
    cached: bool


class Catalog:
    """Runtimes by version, fetched on first use and kept below the cache.

    They come from PyPI, and from `sources`, which are asked first.
    """

    def __init__(self, cache_root: Path, *, sources: Iterable[LibrarySource] = ()) -> None:
        self._cache_root = cache_root
        wheels = WheelCache(cache_root / "wheels")
        self._unpacked = UnpackedWheels(cache_root / "unpacked", wheels)
        self.pypi = PyPiSource(self._unpacked)
        self.ort = OrtLibraries(self._unpacked, cache_root)
        self._sources: dict[str, LibrarySource] = {}
        for source in (*sources, self.pypi):
            self.add(source)
        self._hosts: dict[str, CompilerHost] = {}
        self._at: dict[Path, LibrarySource] = {}

    @classmethod
    def of(cls, lab: Lab, environment: Mapping[str, str], cache_root: Path) -> Self:
        """The catalog of a lab: its `runtimes`, the environment's SDK after them, and PyPI.

        Nothing is opened yet. Raises ConfigError for coordinates that are none.
        """
        sources = [_described(one, lab.folder, cache_root) for one in lab.runtimes]
        sdk = sdk_of_environment(environment)
        if sdk is not None and SDK_NAME not in {source.name for source in sources}:
            variable, path = sdk
            path = path.expanduser().absolute()
            sources.append(SdkSource(SDK_NAME, path, cache_root, field=variable))
        return cls(cache_root, sources=sources)

    def add(self, source: LibrarySource) -> None:
        """Takes a further source, behind those there are. Raises ConfigError for a name taken."""
        if source.name in self._sources:
            raise ConfigError(f"two sources of runtimes are called {source.name!r}")
        self._sources[source.name] = source

    @property
    def sources(self) -> list[LibrarySource]:
        return list(self._sources.values())

    def versions(self, target: str) -> list[str]:
        """The names of the runtimes for a target, by version, oldest first.

        Raises ConfigError for a target that no source has libraries for.
        """
        return choose("all", self._known(target))

    def resolve(self, spec: str, target: str, *, field: str | None = None) -> list[str]:
        """The names of the runtimes that `spec` means for a target, in its order, none twice.

        It is a comma list of versions (2.51.0), short forms that fit only one (2.48 for 2.48.40),
        ranges (>=2.48,<2.51), `latest` and `all`. Each is of any source, or of the one whose name
        and a colon stand in front (sdk:latest). The path of a source means all that it has.
        Raises ConfigError naming `field` and the choices.
        """
        found: dict[str, None] = {}
        for part in split_specs(spec):
            if is_path(part):
                found.update(dict.fromkeys(self._at_path(part, target, field)))
                continue
            if part in self.pypi.versions(target):
                found[part] = None  # whatever is the matter with other sources
                continue
            source, colon, rest = part.partition(":")
            if colon and source in self._sources:
                own = self._sources[source].versions(target)
                if not own:
                    problem = f"{source} has no QNN libraries for {target}"
                    raise VersionError(problem, field=field)
                chosen = {source: choose(rest, dict(zip(own, own, strict=True)), field=field)}
                found.update(dict.fromkeys(names(chosen, PYPI)))
            else:
                found.update(dict.fromkeys(self._choose(part, target, field)))
        return list(found)

    def entries_of(self, source: LibrarySource, target: str) -> list[CatalogEntry]:
        """Every runtime that a source has for a target. Raises as `LibrarySource`."""
        return [
            CatalogEntry(name, source.name, version, target, source.is_cached(version, target))
            for name, version in names({source.name: source.versions(target)}, PYPI).items()
        ]

    def is_same(self, name: str, other: str, targets: Iterable[str]) -> bool:
        """Whether `other` means the runtime that `name` means, wherever `name` means one."""
        for target in targets:
            with contextlib.suppress(ConfigError):
                if (found := self._find(name, target)) and self._find(other, target) != found:
                    return False
        return True

    def is_cached(self, name: str, target: str) -> bool:
        """Whether a runtime can be had without fetching anything. Raises ConfigError."""
        source, version = self._find(name, target)
        return source.is_cached(version, target)

    def runtime(self, name: str, target: str) -> Runtime:
        """The runtime of an exact name, fetched and unpacked if need be, and checked.

        Raises ConfigError for an unknown name or target, InfraError if it cannot be fetched or
        is not what it should be.
        """
        source, version = self._find(name, target)
        return source.runtime(version, target)

    def with_ort(self, name: str, ort: str | None, target: str) -> Runtime:
        """A runtime and an ORT (of `ort.resolve`; None: its own or the usual one) as one.

        The plug-in of the same QNN comes with it, if the runtime is one of PyPI's. Raises as
        `runtime`, and ConfigError where the two cannot be used together.
        """
        source, version = self._find(name, target)
        runtime = source.runtime(version, target)
        beside = []
        if source is self.pypi:
            files = self.pypi.folder(version, target).files.values()
            beside = [LocalFile.of(file) for file in files if file.path.name in BESIDE_ORT]
        return self.ort.join(runtime, ort, tuple(beside))

    def damage(self, name: str, target: str) -> list[str]:
        """What of a runtime is not as it was kept, every byte read. Raises ConfigError."""
        source, version = self._find(name, target)
        return source.damage(version, target)

    def compiler_host(self, version: str) -> CompilerHost:
        """What compiles contexts with an exact QNN version on this computer.

        Raises ConfigError for an unknown version, InfraError if it cannot be fetched or if this
        computer is not one that compiles (x86-64 Linux).
        """
        if version not in self._hosts:
            require_compiling_host()
            self._hosts[version] = CompilerHost(
                qnn_version=version,
                ort_version=ORT_HOST_VERSION,
                # devices get other files of the same wheel: one folder holds one choice of them
                ort_root=ort_folder(self.unpacked_in("unpacked-host")).path,
                qnn_root=self.pypi.folder(version, "linux-x64").path,
            )
        return self._hosts[version]

    def unpacked_in(self, folder: str) -> UnpackedWheels:
        """Wheels unpacked into a folder of the cache, for files that nobody else wants."""
        return UnpackedWheels(self._cache_root / folder, self._unpacked.wheels)

    def executorch(self, target: str) -> VerifiedFolder:
        """ExecuTorch's headers and libraries. Raises as `executorch_folder`."""
        return executorch_folder(self._unpacked, target)

    def compiler_for(self, name: str, target: str) -> str:
        """The QNN version whose contexts a runtime gets unless others are asked for.

        Its own where PyPI has that, else the newest older one: contexts of a newer version would be
        refused. Raises ConfigError if there is none, or the runtime is unknown.
        """
        _, version = self._find(name, target)
        if version in QNN_WHEELS:
            return version
        runtime = QnnVersion.parse(version.split("_")[0])
        fitting = [
            one for one in all_versions() if not QnnVersion.parse(one).is_newer_than(runtime)
        ]
        if not fitting:
            raise VersionError(
                f"no compiler is as old as QNN {version}, so that {name} has no contexts of its "
                "own; name one whose contexts it shall be given",
                field="--compiler",
                choices=all_versions(),
            )
        return fitting[-1]

    def _at_path(self, text: str, target: str, field: str | None) -> list[str]:
        path = Path(text).expanduser().absolute()
        try:
            if path not in self._at:
                self._at[path] = source_at(path, self._sources, self._cache_root)
                self.add(self._at[path])
            source = self._at[path]
            versions = source.versions(target)
        except ConfigError as error:
            raise type(error)(error.problem, field=field, choices=error.choices) from error
        if not versions:
            raise VersionError(f"{path} has no QNN libraries for {target}", field=field)
        return list(names({source.name: versions}, PYPI))

    def _choose(self, part: str, target: str, field: str | None) -> list[str]:
        try:
            return choose(part, self._known(target), field=field)
        except ConfigError as error:
            here = part and Path(part).exists()
            hint = f"; if the path is meant, write ./{part}" if here else ""
            problem = error.problem + hint
            raise type(error)(problem, field=field, choices=error.choices) from error

    def _known(self, target: str) -> dict[str, str]:
        listed = {name: source.versions(target) for name, source in self._sources.items()}
        known = names(listed, PYPI)
        if not known:
            raise ConfigError(
                f"there is no source of QNN libraries for target {target!r}; `runtimes` of "
                "devices.yaml can name one (PyPI has them for the others)",
                choices=QNN_PLATFORMS,
            )
        return known

    def _find(self, name: str, target: str) -> tuple[LibrarySource, str]:
        prefix, colon, version = name.partition(":")
        if colon and prefix in self._sources:
            source = self._sources[prefix]
            if version in source.versions(target):
                return source, version
        elif name in self.pypi.versions(target):
            return self.pypi, name
        else:
            for source in self._sources.values():
                if name in source.versions(target):
                    return source, name
        choices = choose("all", self._known(target))
        raise VersionError(f"unknown QNN version {name[:80]!r}", choices=choices)


def resolve_versions(spec: str, *, field: str | None = None) -> list[str]:
    """The exact QNN versions of PyPI that a user's `spec` means; see `Catalog.resolve` (pure)."""
    return choose_all(spec, all_versions(), field=field)


@dataclass(frozen=True)
class Choice:
    """The runtimes by target, and for targets where a spec meant nothing, why."""

    runtimes: Mapping[str, tuple[str, ...]]
    reasons: Mapping[str, tuple[str, ...]]


def choose_runtimes(resolve: Resolve, specs: Sequence[str], targets: Iterable[str]) -> Choice:
    """What `specs` mean for each target, each name once (pure but for `resolve`).

    A spec that means something for one target only is left out for the others, with the reason.
    Raises the ConfigError of a spec that means nothing for any of them.
    """
    wanted = list(dict.fromkeys(targets))
    runtimes: dict[str, dict[str, None]] = {target: {} for target in wanted}
    reasons: dict[str, list[str]] = {target: [] for target in wanted}
    for spec in specs:
        errors: list[ConfigError] = []
        for target in wanted:
            try:
                runtimes[target].update(dict.fromkeys(resolve(spec, target)))
            except ConfigError as error:
                errors.append(error)
                reasons[target].append(f"for {target}: {error}")
        if errors and len(errors) == len(wanted):
            raise errors[0]
    return Choice(
        {target: tuple(found) for target, found in runtimes.items()},
        {target: tuple(found) for target, found in reasons.items()},
    )


def source_at(path: Path, taken: Collection[str], cache_root: Path) -> LibrarySource:
    """The source that a path is: an AAR, a QAIRT tree, a Maven repository or a plain folder.

    Its name is made of the path's last part, and is none of `taken`. Raises ConfigError if there
    is nothing of that kind.
    """
    path = path.expanduser().absolute()
    name = _free_name(path, {*taken, PACKAGE_INDEX})
    if path.is_file() and path.suffix.lower() == ".aar":
        return AarSource(name, path, cache_root)
    if not path.is_dir():
        what = "is neither a folder nor an AAR" if path.exists() else "does not exist"
        raise ConfigError(f"{path} {what}")
    if sdks_in(path):
        return SdkSource(name, path, cache_root)
    coordinates = Coordinates.parse(QNN_RUNTIME)
    if (path / coordinates.folder).is_dir():
        return MavenSource(name, coordinates, path, cache_root)
    return FolderSource(name, path, cache_root)


def _described(one: RuntimeSource, folder: Path, cache_root: Path) -> LibrarySource:
    path, of_aars = one.located(folder), one.target or AAR_TARGET
    match one.kind:
        case "qairt":
            return SdkSource(one.name, path, cache_root, toolchain=one.toolchain)
        case "folder":
            return FolderSource(one.name, path, cache_root, version=one.version, target=one.target)
        case "aar":
            return AarSource(one.name, path, cache_root, version=one.version, target=of_aars)
    try:
        coordinates = Coordinates.parse(one.coordinates or "")
    except ConfigError as error:
        raise ConfigError(error.problem, field=f"runtimes.{one.name}.coordinates") from error
    location = one.repository if "://" in (one.repository or "") else path
    return MavenSource(one.name, coordinates, location or path, cache_root, target=of_aars)


def _free_name(path: Path, taken: Collection[str]) -> str:
    plain = re.sub(r"[^a-z0-9._-]+", "-", path.name.removesuffix(".aar").lower()).strip("-.")
    plain = plain[:40] or "folder"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name
