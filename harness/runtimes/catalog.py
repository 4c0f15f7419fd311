"""The QNN runtimes that can be had, by version and target, with every file's hash."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import ConfigError, InfraError
from harness.runtimes.file_sets import LIBRARY_FOLDER
from harness.runtimes.notices import Say, on_stderr, on_terminal
from harness.runtimes.ort_wheels import BESIDE_ORT, OrtWheels
from harness.runtimes.pypi import PYPI, QNN_PLATFORMS, QNN_PROJECT, PyPiSource, all_versions
from harness.runtimes.runtime import Runtime, RuntimeFile, content_key
from harness.runtimes.sealed import SealedFolder
from harness.runtimes.source import Source
from harness.runtimes.unpacked import UnpackedWheels
from harness.runtimes.version_specs import choose, names, split_specs
from harness.runtimes.wheels import WheelCache, WheelRequest

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

ORT_PROJECT: Final = "onnxruntime"
ORT_HOST_VERSION: Final = "1.26.0"
"""The ORT that compiles contexts: works with the QNN wheels 2.3.0 to 2.7.0 (tested for each).

Not every pair that pip accepts does: from 1.28.0 on ORT makes no session with the plug-in of 2.3.0.
"""

_ORT_PLATFORM = "manylinux_2_28_x86_64"


@dataclass(frozen=True)
class CompilerHost:
    """What compiles contexts on this computer: one ORT, and the QNN that does the work.

    `ort_root` and `qnn_root` are folders for PYTHONPATH.
    """

    qnn_version: str
    ort_version: str
    ort_root: Path
    qnn_root: Path

    @property
    def backend(self) -> Path:
        """The HTP library that holds the compiler."""
        return self.qnn_root / LIBRARY_FOLDER / "libQnnHtp.so"

    @property
    def system_library(self) -> Path:
        """The library that reads the metadata of contexts."""
        return self.qnn_root / LIBRARY_FOLDER / "libQnnSystem.so"

    @property
    def plugin(self) -> Path:
        """The library that ORT registers as execution provider."""
        return self.qnn_root / LIBRARY_FOLDER / "libonnxruntime_providers_qnn.so"


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
        wheels = WheelCache(cache_root / "wheels", notify=notify, warn=warn)
        self._unpacked = UnpackedWheels(cache_root / "unpacked", wheels, notify=notify, warn=warn)
        self._pypi = PyPiSource(wheels, self._unpacked)
        self._ort = OrtWheels(wheels, self._unpacked)
        self._sources: dict[str, Source] = {}
        for source in (*sources, self._pypi):
            self.add(source)
        self._hosts: dict[str, CompilerHost] = {}

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
        front (sdk:latest), of that one. Raises ConfigError naming `field` and the choices.
        """
        known = self._known(target)
        found: dict[str, None] = {}
        for part in split_specs(spec):
            source, colon, rest = part.partition(":")
            if colon and source in self._sources:
                own = {source: self._sources[source].versions(target)}
                chosen = choose(rest, {v: v for v in own[source]}, field=field)
                own[source] = chosen
                found.update(dict.fromkeys(names(own, PYPI)))
            else:
                found.update(dict.fromkeys(choose(part, known, field=field)))
        return list(found)

    def entries(self, target: str) -> list[Entry]:
        """Every runtime there is for a target, source by source. Raises as `Source`."""
        return [
            Entry(name, source.name, version, target, source.is_cached(version, target))
            for source in self._sources.values()
            for name, version in names({source.name: source.versions(target)}, PYPI).items()
        ]

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
        """A runtime and a version of ORT as one; see `OrtWheels.join`.

        ORT's plug-in of the same QNN comes with it, if the runtime is one of PyPI's.
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
        return self._ort.join(runtime, ort, beside)

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
            if sys.platform != "linux" or platform.machine() != "x86_64":
                raise InfraError(
                    "contexts are compiled on x86-64 Linux only, and this computer is "
                    f"{sys.platform} {platform.machine()}"
                )
            self._hosts[version] = CompilerHost(
                qnn_version=version,
                ort_version=ORT_HOST_VERSION,
                ort_root=self._ort_folder().path,
                qnn_root=self._pypi.folder(version, "linux-x64").path,
            )
        return self._hosts[version]

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
        else:
            for source in self._sources.values():
                if name in source.versions(target):
                    return source, name
        known = self._known(target)
        raise ConfigError(f"unknown QNN version {name[:80]!r}", choices=choose("all", known))

    def _ort_folder(self) -> SealedFolder:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        abi = f"cp{version.replace('.', '')}{sys.abiflags}"
        request = WheelRequest(ORT_PROJECT, ORT_HOST_VERSION, _ORT_PLATFORM, version, abi)
        return self._unpacked.folder(request, lambda name: name.startswith("onnxruntime/"))


def resolve_versions(spec: str, *, field: str | None = None) -> list[str]:
    """The exact QNN versions of PyPI that a user's `spec` means; see `Catalog.resolve` (pure)."""
    known = {version: version for version in all_versions()}
    found: dict[str, None] = {}
    for part in split_specs(spec):
        found.update(dict.fromkeys(choose(part, known, field=field)))
    return list(found)
