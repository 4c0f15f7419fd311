"""The QNN runtimes that can be had, by version and target, with every file's hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from harness.errors import ConfigError, VersionError
from harness.lab.inventory import Lab
from harness.qnn.versions import QNN_WHEELS, QnnVersion
from harness.runtimes.compiler_host import (
    ORT_HOST_VERSION,
    CompilerHost,
    ort_folder,
    require_compiling_host,
)
from harness.runtimes.notices import Say, on_stderr, on_terminal
from harness.runtimes.ort_places import OrtPlaces
from harness.runtimes.ort_wheels import BESIDE_ORT, OrtWheels
from harness.runtimes.places import described_sources, source_at
from harness.runtimes.pypi import PYPI, QNN_PLATFORMS, QNN_PROJECT, PyPiSource, all_versions
from harness.runtimes.runtime import Runtime, RuntimeFile, content_key
from harness.runtimes.source import Source
from harness.runtimes.unpacked import UnpackedWheels
from harness.runtimes.version_specs import choose, is_path, names, split_specs
from harness.runtimes.wheels import WheelCache

__all__ = [
    "QNN_PROJECT",
    "Catalog",
    "CompilerHost",
    "Entry",
    "Runtime",
    "RuntimeFile",
    "all_versions",
    "content_key",
    "resolve_versions",
]


@dataclass(frozen=True)
class Entry:
    """One runtime that can be had: what options call it, its source and version."""

    name: str
    source: str
    version: str
    target: str
    cached: bool


class Catalog:
    """Runtimes by version, fetched on first use and kept below the cache.

    They come from PyPI, and from `sources`, which are asked first. `notify` gets progress, `warn`
    what must be seen even in a pipe (a damaged cache).
    """

    def __init__(
        self,
        cache_root: Path,
        *,
        sources: Iterable[Source] = (),
        notify: Say = on_terminal,
        warn: Say = on_stderr,
    ) -> None:
        self.notify = notify
        self.warn = warn
        self._cache_root = cache_root
        wheels = WheelCache(cache_root / "wheels", notify=notify, warn=warn)
        self._unpacked = UnpackedWheels(cache_root / "unpacked", wheels, notify=notify, warn=warn)
        self._pypi = PyPiSource(wheels, self._unpacked)
        self.ort = OrtPlaces(
            OrtWheels(wheels, self._unpacked), cache_root, notify=notify, warn=warn
        )
        self._sources: dict[str, Source] = {}
        for source in (*sources, self._pypi):
            self.add(source)
        self._hosts: dict[str, CompilerHost] = {}
        self._at: dict[Path, Source] = {}

    @classmethod
    def of(
        cls,
        lab: Lab,
        environment: Mapping[str, str],
        cache_root: Path,
        *,
        notify: Say = on_terminal,
        warn: Say = on_stderr,
    ) -> Self:
        """The catalog of a lab: its `runtimes`, the environment's SDK, and PyPI.

        Raises ConfigError for a source that cannot be.
        """
        sources = described_sources(
            lab.runtimes, lab.folder, environment, cache_root, notify=notify, warn=warn
        )
        return cls(cache_root, sources=sources, notify=notify, warn=warn)

    def add(self, source: Source) -> None:
        """Takes a further source, behind those there are. Raises ConfigError for a name taken."""
        if source.name in self._sources:
            raise ConfigError(f"two sources of runtimes are called {source.name!r}")
        self._sources[source.name] = source

    @property
    def sources(self) -> list[Source]:
        """Where runtimes come from, in the order they are asked."""
        return list(self._sources.values())

    def versions(self, target: str) -> list[str]:
        """The names of the runtimes for a target, by version, oldest first.

        Raises ConfigError for a target that no source has libraries for.
        """
        return choose("all", self._known(target))

    def resolve(self, spec: str, target: str, *, field: str | None = None) -> list[str]:
        """The names of the runtimes that `spec` means for a target, in its order, none twice.

        A comma list of versions (2.51.0), short forms that fit only one (2.48 for 2.48.40), ranges
        (>=2.48,<2.51), `latest` and `all`, each of any source or, with its name and a colon in
        front (sdk:latest), of that one; or the path of a source, which means all that it has.
        Raises ConfigError naming `field` and the choices.
        """
        found: dict[str, None] = {}
        for part in split_specs(spec):
            if is_path(part):
                found.update(dict.fromkeys(self._at_path(part, target, field)))
                continue
            if part in self._pypi.versions(target):
                found[part] = None  # whatever is the matter with other sources
                continue
            source, colon, rest = part.partition(":")
            if colon and source in self._sources:
                own = {source: self._sources[source].versions(target)}
                chosen = choose(rest, {v: v for v in own[source]}, field=field)
                own[source] = chosen
                found.update(dict.fromkeys(names(own, PYPI)))
            else:
                found.update(dict.fromkeys(self._choose(part, target, field)))
        return list(found)

    def entries_of(self, source: Source, target: str) -> list[Entry]:
        """Every runtime that a source has for a target. Raises as `Source`."""
        return [
            Entry(name, source.name, version, target, source.is_cached(version, target))
            for name, version in names({source.name: source.versions(target)}, PYPI).items()
        ]

    def is_cached(self, name: str, target: str) -> bool:
        """Whether a runtime can be had without fetching anything. Raises ConfigError."""
        source, version = self._find(name, target)
        return source.is_cached(version, target)

    def is_kept(self, name: str, target: str) -> bool:
        """Whether anything of a runtime is on this computer, be it damaged. Raises ConfigError."""
        source, version = self._find(name, target)
        return source.is_kept(version, target)

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
        if source is self._pypi:
            beside = [
                RuntimeFile(file.path, path, file.size, file.sha256)
                for path, file in self._pypi.folder(version, target).files.items()
                if file.path.name in BESIDE_ORT
            ]
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
                ort_root=ort_folder(self._unpacked).path,
                qnn_root=self._pypi.folder(version, "linux-x64").path,
            )
        return self._hosts[version]

    def compiler_for(self, name: str, target: str) -> str:
        """The QNN version whose contexts a runtime gets unless others are asked for.

        Its own where PyPI has it, else the newest that is not newer: a newer one's contexts would
        be refused. Raises ConfigError if there is none, or the runtime is unknown.
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
                self._at[path] = source_at(
                    path, self._sources, self._cache_root, notify=self.notify, warn=self.warn
                )
                self.add(self._at[path])
            source = self._at[path]
            versions = source.versions(target)
        except ConfigError as error:
            raise type(error)(error.problem, field=field, choices=error.choices) from error
        if not versions:
            raise VersionError(f"{path} has no QNN libraries for {target}", field=field)
        return list(names({source.name: versions}, PYPI))

    def _choose(self, part: str, target: str, field: str | None) -> list[str]:
        known = self._known(target)
        try:
            return choose(part, known, field=field)
        except ConfigError as error:
            if part and Path(part).exists():
                hint = f"; if the place is meant, write ./{part}"
                raise type(error)(
                    error.problem + hint, field=field, choices=error.choices
                ) from error
            raise

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

    def _find(self, name: str, target: str) -> tuple[Source, str]:
        prefix, colon, version = name.partition(":")
        if colon and prefix in self._sources:
            source = self._sources[prefix]
            if version in source.versions(target):
                return source, version
        elif name in self._pypi.versions(target):
            return self._pypi, name
        else:
            for source in self._sources.values():
                if name in source.versions(target):
                    return source, name
        known = self._known(target)
        raise VersionError(f"unknown QNN version {name[:80]!r}", choices=choose("all", known))


def resolve_versions(spec: str, *, field: str | None = None) -> list[str]:
    """The exact QNN versions of PyPI that a user's `spec` means; see `Catalog.resolve` (pure)."""
    known = {version: version for version in all_versions()}
    found: dict[str, None] = {}
    for part in split_specs(spec):
        found.update(dict.fromkeys(choose(part, known, field=field)))
    return list(found)
