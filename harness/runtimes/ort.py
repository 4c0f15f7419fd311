"""ONNX Runtime and ExecuTorch for a device: any version of the package index, or one at a path.

No torch comes along: the wheel alone has 19 MB, and what is unpacked of it 13 MB. For devices that
it has no libraries for, a user's own build of ExecuTorch has a runner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from harness.core.errors import ConfigError, InfraError, VersionError
from harness.core.local_file import LocalFile
from harness.core.outgoing_text import counted
from harness.core.socs import PLATFORMS
from harness.core.verified_folder import HashCache, VerifiedFolder
from harness.core.versions import VersionRange
from harness.runtimes.aar import AarStore
from harness.runtimes.elf import ElfError, read_elf
from harness.runtimes.local_sources import kept_inside, listed_files
from harness.runtimes.pypi import ORT_PROJECT, UnpackedWheels, WheelRequest
from harness.runtimes.runtime import (
    NotOffered,
    Runtime,
    kind_of,
    library_target,
    read_library,
)
from harness.runtimes.version_specs import choose_all, is_path, split_specs

# Those with a C library in the wheel (from 1.24.1 on) that were tried; oldest first.
ORT_VERSIONS: Final = (
    *("1.24.1", "1.24.2", "1.24.3", "1.24.4", "1.25.0", "1.25.1", "1.26.0"),
    *("1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.0", "1.31.1"),
)
ORT_DEVICE_VERSION: Final = "1.26.0"
"""The ORT of a device unless another is asked for: works with every QNN wheel (2.3.0 to 2.7.0)."""

# Every Python tag of a version holds the same C library, so that one tag serves every host.
_ORT_PYTHON: Final = ("3.12", "cp312")
ORT_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {"linux-x64": "manylinux_2_28_x86_64", "linux-arm64": "manylinux_2_28_aarch64"}
)

CAPI_FOLDER: Final = "onnxruntime/capi"
PATH_FOLDER: Final = "ort"
"""Where an ORT lies in a runtime that is not from PyPI."""
PLUGIN: Final = "libonnxruntime_providers_qnn.so"
# What of the QNN wheel ORT needs besides the runtime: its plug-in, and, where libQnnHtp.so does
# not hold it, the compiler, since sessions are made of models that are not compiled yet.
BESIDE_ORT: Final = (PLUGIN, "libQnnHtpPrepare.so")

_DEPTH = 4


class OrtLibraries:
    """Every ORT that there is for a target: PyPI's versions, and those that were named by a path.

    An ORT is called by its version; one named by a path, by the last part of that and its version.
    """

    def __init__(self, unpacked: UnpackedWheels, cache_root: Path) -> None:
        self._unpacked = unpacked
        self._cache_root = cache_root
        self._aars = AarStore(cache_root)
        self._own: dict[str, tuple[Path, LocalFile]] = {}

    def versions(self, target: str) -> list[str]:
        """PyPI's versions for a target, oldest first."""
        return list(ORT_VERSIONS) if target in ORT_PLATFORMS else []

    def is_cached(self, version: str, target: str) -> bool:
        """Whether a version of PyPI's needs no network. Raises ConfigError."""
        return self._unpacked.wheels.is_cached(ort_request(version, target))

    def fetch(self, version: str, target: str) -> LocalFile:
        """The library of a version of PyPI's, fetched and unpacked if need be, and checked.

        Raises ConfigError for an unknown version or target, InfraError if it cannot be fetched or
        its wheel does not hold one library.
        """
        folder = self._unpacked.folder(ort_request(version, target), is_ort_library)
        found = list(folder.files.values())
        if len(found) != 1:
            libraries = counted(len(found), "library", "libraries")
            raise InfraError(f"{folder.path.name} holds {libraries} of ORT, expected 1")
        return LocalFile.of(found[0])

    def damage(self, version: str, target: str) -> list[str]:
        """What of a version of PyPI's is not as kept, every byte read. Raises ConfigError."""
        return self._unpacked.damage(ort_request(version, target))

    def resolve(self, spec: str, target: str, *, field: str | None = None) -> list[str]:
        """The names that `spec` means for a target.

        A comma list of exact (1.26.0) and short versions (1.27), ranges (>=1.24,<1.32), `latest`
        and `all`, or a path. Raises ConfigError naming `field` and the choices.
        """
        found: dict[str, None] = {}
        for part in split_specs(spec):
            if is_path(part):
                try:
                    found[self._at(Path(part).expanduser().absolute(), target)] = None
                except ConfigError as error:
                    raise type(error)(error.problem, field=field) from error
            elif not self.versions(target):
                raise VersionError(
                    f"PyPI has no ONNX Runtime for {target}; give the path of an AAR or a folder",
                    field=field,
                )
            else:
                own = choose_all(part, ORT_VERSIONS, field=field, what="ORT")
                found.update(dict.fromkeys(own))
        return list(found)

    def join(self, runtime: Runtime, name: str | None, beside: Iterable[LocalFile] = ()) -> Runtime:
        """A QNN runtime and an ORT of `resolve` (None: `ORT_DEVICE_VERSION`) as one runtime.

        `beside` are further files of the same QNN (see `BESIDE_ORT`). An ORT of a path needs no
        plug-in: ORT for Android has the QNN provider built in. A runtime that brings its own ORT
        stays as it is. Raises as `fetch`. Raises NotOffered if another ORT than its own is asked
        for, or if there is no plug-in for PyPI's ORT, which has no QNN provider built in.
        """
        if name is not None and name in self._own:
            _, library = self._own[name]
            return joined(runtime, name.rpartition(":")[2], (library, *beside))
        if runtime.ort_version is not None:
            if name not in (None, runtime.ort_version):
                raise NotOffered(
                    f"{runtime.name} brings ORT {runtime.ort_version} of its own, and cannot be "
                    f"used with {name}",
                    field="ort",
                )
            return runtime
        if not any(PurePosixPath(file.name).name == PLUGIN for file in (*runtime.files, *beside)):
            raise NotOffered(
                f"{runtime.name} for {runtime.target} has no {PLUGIN}, which ORT from PyPI needs",
                field="ort",
            )
        chosen = name or ORT_DEVICE_VERSION
        return joined(runtime, chosen, (self.fetch(chosen, runtime.target), *beside))

    def _at(self, path: Path, target: str) -> str:
        files = self._files(path)
        libraries = {name: file for name, file in files.items() if kind_of(name)[0] == "ort"}
        if len(libraries) != 1:
            number = counted(len(libraries), "library", "libraries")
            raise ConfigError(f"{path} holds {number} of ORT, expected one")
        ((name, file),) = libraries.items()
        facts = read_library(file, name)
        if facts.ort_version is None:
            raise ConfigError(f"{path} does not say which version of ORT it is")
        own_target = library_target([facts])
        if own_target not in (None, target):
            raise VersionError(f"{path} has an ORT for {own_target}, not for {target}")
        hashed = HashCache(self._cache_root, path).hashed(libraries)[name]
        found = f"{path.name.removesuffix('.aar').lower()}:{facts.ort_version}"
        if found in self._own and self._own[found][0] != path:
            raise ConfigError(f"{path} and {self._own[found][0]} have the same name and version")
        made = LocalFile(
            file, f"{PATH_FOLDER}/{PurePosixPath(name).name}", hashed.size, hashed.sha256
        )
        self._own[found] = path, made
        return found

    def _files(self, path: Path) -> dict[str, Path]:
        if path.is_file() and path.suffix.lower() == ".aar":
            return self._aars.files(path)
        if not path.is_dir():
            what = "is neither a folder nor an AAR" if path.exists() else "does not exist"
            raise ConfigError(f"{path} {what}")
        listed = listed_files(path, "lib", field="--ort", depth=_DEPTH)
        libraries = {name: file for name, file in listed.items() if kind_of(name)[0] == "ort"}
        return kept_inside(libraries, path, field="--ort")


def ort_request(version: str, target: str) -> WheelRequest:
    """The wheel of a version. Raises ConfigError for an unknown version or target (pure)."""
    if target not in ORT_PLATFORMS:
        raise ConfigError(f"PyPI has no ORT for target {target!r}", choices=ORT_PLATFORMS)
    if version not in ORT_VERSIONS:
        raise VersionError(f"unknown ORT version {version[:80]!r}", choices=ORT_VERSIONS)
    return WheelRequest(ORT_PROJECT, version, ORT_PLATFORMS[target], *_ORT_PYTHON)


def is_ort_library(name: str) -> bool:
    """Whether a file of the wheel is ORT's C library (pure)."""
    path = PurePosixPath(name)
    return str(path.parent) == CAPI_FOLDER and path.name.startswith("libonnxruntime.so")


def joined(runtime: Runtime, version: str, more: Iterable[LocalFile]) -> Runtime:
    """A runtime with more files, ORT's library of this version among them (pure)."""
    files = {file.name: file for file in (*runtime.files, *more)}
    return replace(runtime, files=tuple(files[name] for name in sorted(files)), ort_version=version)


def ort_library_of(runtime: Runtime) -> str:
    """The name of ORT's C library in a runtime that has one. Raises ConfigError (pure)."""
    for file in runtime.files:
        if PurePosixPath(file.name).name.startswith("libonnxruntime.so"):
            return PurePosixPath(file.name).name
    raise VersionError(f"{runtime.name} for {runtime.target} holds no ORT")


EXECUTORCH_VERSION: Final = "1.5.1"
EXECUTORCH_TARGET: Final = "linux-x64"
"""What the libraries of the wheel are for; on other devices it takes a program of the user's."""

EXECUTORCH_TAKES: Final = VersionRange.parse(">=2.49,<2.50")
"""The QNN versions whose HTP backend reads a device configuration as ExecuTorch 1.5.1 writes it.

Behind the option word its fields start at byte 4 in the HTP API 5.49 (QNN 2.49.40), and at byte 8
before and after that. Measured with QNN 2.47.0 to 2.51.0; see also native/backend.c of the probe.
"""

# Its headers and these libraries are the same for each Python.
_REQUEST: Final = WheelRequest(
    "executorch", EXECUTORCH_VERSION, "manylinux_2_28_x86_64", "3.11", "cp311"
)
_FOLDER: Final = "executorch"
EXECUTORCH_LIBRARIES: Final = (
    "libexecutorch.so",
    "libexecutorch_backend_qnn.so",
    "libexecutorch_kernels_optimized.so",
    "libexecutorch_threadpool.so",
)
"""What the runner is linked with, and what those need besides the C++ runtime of the system."""

OWN_BUILD: Final = "own build"
"""What a record calls the ExecuTorch of a user's own build, which does not tell its version."""

RUNNER: Final = "qnn_executor_runner"
_BACKEND: Final = "libqnn_executorch_backend.so"
# as ExecuTorch's CMake leaves them below a build folder, or side by side
_RUNNERS: Final = ("", "examples/qualcomm/executor_runner")
_LIBRARIES: Final = ("", "lib", "backends/qualcomm")
_MOST_LIBRARIES: Final = 64
_MOST_BYTES: Final = 1 << 30


def executorch_folder(unpacked: UnpackedWheels, target: str) -> VerifiedFolder:
    """The wheel, unpacked; its files are below `executorch/`.

    Raises ConfigError for a target that it has no libraries for, InfraError if it cannot be had.
    """
    if target != EXECUTORCH_TARGET:
        raise ConfigError(
            f"ExecuTorch's wheel has no libraries for {target}; --executorch BUILD_DIR names a "
            "build of your own with qnn_executor_runner",
            choices=[EXECUTORCH_TARGET],
        )
    libraries = {f"{_FOLDER}/lib/{name}" for name in EXECUTORCH_LIBRARIES}
    return unpacked.folder(
        _REQUEST, lambda name: name in libraries or name.startswith(f"{_FOLDER}/include/")
    )


def runner_files(folder: Path, target: str) -> dict[str, Path]:
    """The runner of a build folder and the libraries beside it, by name.

    Raises ConfigError where one of them is missing, or for another kind of device.
    """
    field = "--executorch"
    runner = next((path for at in _RUNNERS if (path := folder / at / RUNNER).is_file()), None)
    if runner is None:
        places = [f"{at}/{RUNNER}".lstrip("/") for at in _RUNNERS]
        raise ConfigError(f"no {RUNNER} in it", file=folder, field=field, choices=places)
    found: dict[str, Path] = {}
    for at in (*_LIBRARIES, _RUNNERS[1]):
        for path in sorted((folder / at).glob("*.so"))[:_MOST_LIBRARIES]:
            if path.is_file():
                found.setdefault(path.name, path)
    if not any(name.startswith(("libexecutorch", _BACKEND)) for name in found):
        places = [f"{at}/{_BACKEND}".lstrip("/") for at in _LIBRARIES]
        raise ConfigError(f"no {_BACKEND} in it", file=folder, field=field, choices=places)
    kept_inside({RUNNER: runner, **found}, folder, field=field)
    for path in (runner, *found.values()):
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"has more than {_MOST_BYTES} bytes", file=path, field=field)
    try:
        machine = read_elf(runner.read_bytes()).machine
    except ElfError as error:
        raise ConfigError(f"is no program: {error}", file=runner, field=field) from error
    if machine != PLATFORMS[target].machine:
        problem = f"is for {machine}, and the device ({target}) takes {PLATFORMS[target].machine}"
        raise ConfigError(problem, file=runner, field=field)
    return {RUNNER: runner, **found}
