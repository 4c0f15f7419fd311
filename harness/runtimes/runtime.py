"""A runtime: the libraries for a target, their facts, and the files that a device needs.

Names are file names; folders differ from source to source. The source of a fact is a public page
or an experiment: "opened" files are those that the dynamic loader opened while contexts were loaded
and executed (LD_DEBUG=files, QNN 2.47.0 and 2.51.0).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from pydantic import TypeAdapter

from harness.core.bounded_json import parse_model
from harness.core.errors import ConfigError, VersionError
from harness.core.files import LocalFile, content_key, read_bounded, write_whole
from harness.core.matrix_axes import BACKENDS
from harness.core.socs import PLATFORMS, process_environment
from harness.core.state_folders import cache_root
from harness.core.versions import QnnVersion
from harness.deploy.deploy import KEY_LENGTH, Deployer
from harness.deploy.layout import FileSet
from harness.runtimes.elf import ElfError, ElfFacts, read_elf

LibraryKind = Literal[
    "backend-htp",
    "backend-gpu",
    "backend-cpu",
    "stub",
    "skel",
    "system",
    "prepare",
    "ort",
    "ort-plugin",
    "c++-runtime",
    "other",
]

MAX_LIBRARY_BYTES: Final = 1 << 30
"""The largest library of QNN 2.51.0 has 106 MB."""

_KINDS: Final[tuple[tuple[str, LibraryKind], ...]] = (
    (r"libQnnHtp\.so", "backend-htp"),
    (r"libQnnGpu\.so", "backend-gpu"),
    (r"libQnnCpu\.so", "backend-cpu"),
    (r"libQnnHtpV(\d\d)Stub\.so", "stub"),
    (r"libQnnHtpV(\d\d)Skel\.so", "skel"),
    (r"libQnnSystem\.so", "system"),
    (r"lib(?:Qnn)?HtpPrepare\.so", "prepare"),
    (r"libonnxruntime\.so(?:\.\d+)*", "ort"),
    (r"libonnxruntime_providers_qnn\.so", "ort-plugin"),
    (r"lib(?:c\+\+(?:abi|_shared)?|unwind|stdc\+\+)(?:-[0-9a-f]{8})?\.so(?:\.\d+)*", "c++-runtime"),
)
_NAMES = [(re.compile(pattern, re.ASCII), kind) for pattern, kind in _KINDS]

# Builds in all libraries of QNN 2.47.0 to 2.51.0 for x86-64 and aarch64: v2.51.0.260929181845 in
# backends, stubs, skels and libQnnHtpPrepare.so. Logs of other SDKs have one more number,
# v2.28.2.241116104011_103376 (pytorch/executorch#8762). libQnnSystem.so has only the time,
# 260929181845, as a separate string.
_BUILD = re.compile(rb"v(\d{1,3}\.\d{1,3}\.\d{1,3})\.(\d{12}|\d{6})(?!\d)")
# begins with what is found fast: libQnnSystem.so is searched whole
_STAMP = re.compile(
    rb"2(?<![0-9A-Za-z].)\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[01]\d|2[0-3])(?:[0-5]\d){2}(?=\0)",
    re.DOTALL,
)
_AISW = re.compile(rb"AISW_VERSION: (\d{1,3}\.\d{1,3}\.\d{1,3})(?!\d)")

# Plug-ins that ask ORT for its API version before they use it have this text (2.4.0 and newer).
_NEGOTIATES = b"QNN EP requires ORT >= 1."
# the version of its symbols
_ORT_DEFINES = re.compile(rb"\0VERS_(\d{1,4}\.\d{1,4}\.\d{1,4})(?=\0)")

_VERSION = re.compile(r"(\d{1,3}\.\d{1,3}\.\d{1,3})(?:\.(\d{6})(\d{0,6}))?(?:_\w*)?", re.ASCII)
BUILD_KINDS: Final[tuple[LibraryKind, ...]] = (
    "backend-htp",
    "backend-gpu",
    "backend-cpu",
    "stub",
    "skel",
    "prepare",
    "ort-plugin",
)
"""Kinds of libraries that name their SDK's build, the most reliable first."""


@dataclass(frozen=True)
class SdkBuild:
    """A build of the SDK: its version and its time (yymmddhhmmss, or yymmdd).

    `version` or `stamp` is empty if a library does not have it.
    """

    version: str
    stamp: str

    def agrees_with(self, other: SdkBuild) -> bool:
        """Return whether both can be the same build, as far as is known of both."""
        if self.version and other.version and self.version != other.version:
            return False
        shared = min(len(self.stamp), len(other.stamp))
        return self.stamp[:shared] == other.stamp[:shared]

    def __str__(self) -> str:
        if self.version and self.stamp:
            return f"{self.version}.{self.stamp}"
        return self.version or f"the build of {self.stamp}"


@dataclass(frozen=True)
class LibraryFacts:
    """Facts of one library.

    `name` is its name inside the runtime, with slashes. `htp_arch` is the 73 of a stub's or
    skel's name. `build` is None if the file names none, or several. `problem` says why `elf` is
    None. `negotiates`: the ORT plug-in adapts to the ORT that loads it.
    """

    name: str
    kind: LibraryKind
    htp_arch: int | None = None
    elf: ElfFacts | None = None
    problem: str | None = None
    build: SdkBuild | None = None
    ort_version: str | None = None
    negotiates: bool = False

    @property
    def file_name(self) -> str:
        return self.name.rsplit("/", 1)[-1]


def kind_of(name: str) -> tuple[LibraryKind, int | None]:
    """Return the kind of a library by its name, and the HTP arch of a stub or skel (pure)."""
    file_name = name.rsplit("/", 1)[-1]
    for pattern, kind in _NAMES:
        if match := pattern.fullmatch(file_name):
            return kind, int(match[1]) if pattern.groups else None
    return "other", None


def library_facts(name: str, data: bytes) -> LibraryFacts:
    """Return the facts of the library `name` from all its bytes (pure). Never raises."""
    kind, htp_arch = kind_of(name)
    try:
        elf = read_elf(data)
    except ElfError as error:
        return LibraryFacts(name, kind, htp_arch, problem=str(error))
    defined = {match[1] for match in _ORT_DEFINES.finditer(data)} if kind == "ort" else set()
    return LibraryFacts(
        name=name,
        kind=kind,
        htp_arch=htp_arch,
        elf=elf,
        build=_build_of(kind, data),
        ort_version=defined.pop().decode() if len(defined) == 1 else None,
        negotiates=kind == "ort-plugin" and _NEGOTIATES in data,
    )


def read_library(path: Path, name: str) -> LibraryFacts:
    """Return the facts of the library at `path`, named `name` in its runtime. Never raises.

    The whole file is read: a tenth of a second for 100 MB.
    """
    try:
        # Not mapped into memory: a file that shrinks meanwhile would kill the process.
        data = read_bounded(path, MAX_LIBRARY_BYTES)
    except OSError as error:
        kind, htp_arch = kind_of(name)
        problem = f"it cannot be read: {error.strerror or error}"
        return LibraryFacts(name, kind, htp_arch, problem=problem)
    return library_facts(name, data)


def _build_of(kind: LibraryKind, data: bytes) -> SdkBuild | None:
    if kind in ("ort", "ort-plugin", "c++-runtime"):
        return None
    builds = _distinct((match[1], match[2]) for match in _BUILD.finditer(data))
    if not builds and kind == "system":
        builds = _distinct((b"", match[0]) for match in _STAMP.finditer(data))
    if not builds:
        builds = _distinct((match[1], b"") for match in _AISW.finditer(data))
    if len(builds) != 1:
        return None
    version, stamp = builds.pop()
    return SdkBuild(version.decode(), stamp.decode())


def _distinct(builds: Iterator[tuple[bytes, bytes]]) -> set[tuple[bytes, bytes]]:
    """Return the distinct builds, at most two: a file could have millions."""
    first = next(builds, None)
    if first is None:
        return set()
    return {first, next((build for build in builds if build != first), first)}


def short_version(text: str) -> str | None:
    """Return a build's version as in options (2.31.0.250130), None for anything else (pure)."""
    match = _VERSION.fullmatch(text.strip().removeprefix("v"))
    return match and ".".join(filter(None, match.groups()[:2]))


def library_target(facts: Iterable[LibraryFacts]) -> str | None:
    """Return the target of the libraries, by the first that shows it (pure)."""
    for elf in (library.elf for library in facts if library.elf):
        for target, system in PLATFORMS.items():
            if (elf.machine, elf.libc) == (system.machine, system.libc):
                return target
    return None


def build_id_of(facts: Iterable[LibraryFacts]) -> str | None:
    """Return the SDK build that the libraries of a runtime name, a backend's first (pure)."""
    named = (library for library in facts if library.build and library.build.version)
    naming = [library for library in named if library.kind in BUILD_KINDS]
    first = min(naming, key=lambda library: BUILD_KINDS.index(library.kind), default=None)
    return None if first is None else str(first.build)


class NotOffered(VersionError):
    """No source offers these libraries together: a case that needs them is unsupported."""


class LibraryMissing(NotOffered):
    """A runtime lacks a library, and cannot do what needs it."""


@dataclass(frozen=True)
class Runtime:
    """One set of libraries for a target, unpacked on the host below `root`.

    `source` is the name of its source, `ort_version` the version of an ORT among the files.
    """

    qnn_version: str
    target: str
    root: Path
    files: tuple[LocalFile, ...]
    source: str = "pypi"
    ort_version: str | None = None

    @cached_property
    def key(self) -> str:
        return content_key(self.files)

    @cached_property
    def library_dirs(self) -> tuple[str, ...]:
        libraries = [file.name for file in self.files if is_library(file.name)]
        folders = {str(PurePosixPath(name).parent) for name in libraries}
        return tuple(sorted(folders, key=lambda folder: (folder.count("/"), folder)))

    @property
    def name(self) -> str:
        return self.qnn_version if self.source == "pypi" else f"{self.source}:{self.qnn_version}"

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def htp_archs(self) -> tuple[int, ...]:
        kinds = (kind_of(file.name) for file in self.files)
        return tuple(sorted({arch for kind, arch in kinds if kind == "skel" and arch}))

    def library(self, name: str) -> Path:
        """Return the host's path of a library such as libQnnSystem.so. Raises LibraryMissing."""
        for file in self.files:
            if file.path.name == name:
                return file.path
        raise LibraryMissing(f"QNN {self.qnn_version} for {self.target} has no {name}")


def is_library(name: str) -> bool:
    """Return whether a file is a shared library by its name: libx.so, libx.so.1.2 (pure)."""
    file_name = name.rsplit("/", 1)[-1]
    return file_name.endswith(".so") or ".so." in file_name


_WHOLE_VERSION: Final = re.compile(r"\d{1,3}(?:\.\d{1,3}){2}\.\d{6}", re.ASCII)


class LibrarySource(ABC):
    """A source of runtimes.

    `versions` and `is_cached` fetch nothing but lists; `runtime` fetches and unpacks what it
    needs. All raise ConfigError if the source's configuration is wrong (no such folder, a version
    that it does not have) and InfraError if the lab fails (network, disk, damaged files).
    """

    name: str
    """Name of the source, which is the prefix of its versions."""
    origin: str
    """Place of the source, for people: a path, a URL, a project."""
    example: str | None = None
    """A version of a source that has more than `versions` lists, each named as a whole."""

    @abstractmethod
    def versions(self, target: str) -> list[str]:
        """Return the versions for a target, oldest first; none for another target."""

    def has(self, version: str, target: str) -> bool:
        """Return whether `runtime` may be asked for an exact version."""
        is_unlisted = self.example is not None and _WHOLE_VERSION.fullmatch(version) is not None
        return is_unlisted or version in self.versions(target)

    def is_cached(self, version: str, target: str) -> bool:
        """Return whether a runtime needs no network, as one on this computer."""
        return True

    @abstractmethod
    def runtime(self, version: str, target: str) -> Runtime:
        """Return the runtime of an exact version that it `has`, verified."""

    @abstractmethod
    def damage(self, version: str, target: str) -> list[str]:
        """Return the damage of a runtime's files, reading every byte; nothing is repaired."""


def version_key(version: str) -> tuple[tuple[int, ...], str]:
    """Return a key that sorts versions; invalid ones come first."""
    known = QnnVersion.found_in(version)
    return known.parts if known else (), version


_MAX_FACTS_BYTES: Final = 16 << 20


@cache
def facts_of(runtime: Runtime) -> tuple[LibraryFacts, ...]:
    """Return the facts of every file of a runtime, in its order. Never raises.

    They are cached by the content of the files: each worker of a run would read 200 MB otherwise.
    """
    stored = TypeAdapter(tuple[LibraryFacts, ...])
    path = cache_root() / "facts" / f"{runtime.key[:32]}-{_reader()[:16]}.json"
    with contextlib.suppress(OSError, ValueError):
        return parse_model(stored, read_bounded(path, _MAX_FACTS_BYTES))
    facts = tuple(read_library(file.path, file.name) for file in runtime.files)
    if not any(library.problem for library in facts):  # what cannot be read may be readable later
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            write_whole(path, stored.dump_json(facts), durable=False)
    return facts


@cache
def _reader() -> str:
    """Return a key that changes with the code that reads libraries."""
    here = Path(__file__)
    code = b"".join(file.read_bytes() for file in (here, here.with_name("elf.py")))
    return hashlib.sha256(code).hexdigest()


Driver = Literal["qnn", "ort-builtin", "ort-plugin", "program"]
"""Driver of the backend: our probe, ORT with the EP built in or as plug-in, or a program."""

DRIVERS: Final[tuple[Driver, ...]] = get_args(Driver)

_ALL_BACKENDS: Final = frozenset(BACKENDS)
_ALL_DRIVERS: Final = frozenset(DRIVERS)


class DeviceFile(NamedTuple):
    """One kind of file, and its uses.

    `pattern` is a regular expression for the whole file name; {arch} stands for the HTP arch.
    `when_preparing`: only for graphs that are composed on the device. `devices_only`: the
    simulator inside the backend for x86-64 does not need it.
    """

    pattern: str
    backends: Collection[str] = _ALL_BACKENDS
    drivers: Collection[str] = _ALL_DRIVERS
    when_preparing: bool = False
    devices_only: bool = False

    def matches(self, file_name: str, htp_arch: int | None) -> bool:
        """Return whether a file is of this kind; of any arch if `htp_arch` is None."""
        arch = r"\d\d" if htp_arch is None else str(htp_arch)
        return re.fullmatch(self.pattern.replace("{arch}", arch), file_name, re.ASCII) is not None


DEVICE_FILES: Final = (
    # QAIRT docs, HTP and GPU backends: libraries to push
    DeviceFile(r"libQnnHtp\.so", ("htp",)),
    DeviceFile(r"libQnnHtpV{arch}Stub\.so", ("htp",), devices_only=True),
    DeviceFile(r"libQnnHtpV{arch}Skel\.so", ("htp",), devices_only=True),
    DeviceFile(r"libQnnGpu\.so", ("gpu",)),
    DeviceFile(r"libQnnCpu\.so", ("cpu",)),
    # not opened for contexts; x86-64 has its code in libQnnHtp.so
    DeviceFile(r"libQnnHtpPrepare\.so", ("htp",), when_preparing=True, devices_only=True),
    # opened: the probe reads the metadata of contexts with it
    DeviceFile(r"libQnnSystem\.so", drivers=("qnn",)),
    # reads context binaries, which the CPU backend has none of:
    # https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html
    DeviceFile(r"libQnnSystem\.so", ("htp", "gpu"), _ALL_DRIVERS - {"qnn"}),
    DeviceFile(r"libonnxruntime\.so(?:\.\d+)*", drivers=("ort-builtin", "ort-plugin")),
    # registered by its path (github.com/onnxruntime/onnxruntime-qnn)
    DeviceFile(r"libonnxruntime_providers_qnn\.so", drivers=("ort-plugin",)),
    # https://docs.pytorch.org/executorch/stable/backends-qualcomm.html
    DeviceFile(r"libqnn_executorch_backend\.so|qnn_executor_runner", drivers=("program",)),
    # the C++ runtime: libc++_shared.so on Android (QAIRT docs), *.libs of manylinux wheels (opened)
    DeviceFile(r"lib(?:c\+\+(?:abi|_shared)?|unwind)(?:-[0-9a-f]{8})?\.so(?:\.\d+)*"),
)


def narrowed(
    runtime: Runtime,
    backend: str,
    driver: str,
    htp_arch: int | None,
    *,
    online_prepare: bool = False,
    needed: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Runtime:
    """Return the runtime with only the files that a process needs on its device (pure).

    `htp_arch` is the 73 of v73; None if it is unknown, which keeps every stub and skel. On
    linux-x64 the simulator does not need these. `needed` are the libraries that files need
    (DT_NEEDED), by file name; they are included if the runtime has them. Raises ConfigError for an
    unknown backend or driver.
    """
    for text, choices, field in ((backend, BACKENDS, "backend"), (driver, DRIVERS, "driver")):
        if text not in choices:
            raise ConfigError(f"unknown {field} {text[:80]!r}", field=field, choices=choices)
    kinds = [
        kind
        for kind in DEVICE_FILES
        if backend in kind.backends
        and driver in kind.drivers
        and (online_prepare or not kind.when_preparing)
        and not (kind.devices_only and runtime.target == "linux-x64")
    ]
    by_name = {PurePosixPath(file.name).name: file for file in runtime.files}
    chosen = {name for name in by_name if any(kind.matches(name, htp_arch) for kind in kinds)}
    pending = list(chosen)
    while pending:
        new = set(needed.get(pending.pop(), ())) - chosen
        chosen |= new
        pending += new
    chosen_files = (file for file in runtime.files if PurePosixPath(file.name).name in chosen)
    return replace(runtime, files=tuple(chosen_files))


def is_device_file(name: str) -> bool:
    """Return whether any process on any device can use a file, by its name (pure)."""
    file_name = name.rsplit("/", 1)[-1]
    return any(kind.matches(file_name, None) for kind in DEVICE_FILES)


@dataclass(frozen=True)
class DeployedRuntime:
    """A runtime on a device: its folder and the environment of a process that uses it."""

    runtime: Runtime
    root: str
    environment: dict[str, str]

    def library(self, name: str) -> str:
        """Return the device's path of a library such as libQnnHtp.so. Raises ConfigError."""
        path = self.runtime.library(name)
        (file_name,) = (file.name for file in self.runtime.files if file.path == path)
        return f"{self.root}/{file_name}"


def deploy_runtime(deployer: Deployer, runtime: Runtime) -> DeployedRuntime:
    """Deploy a runtime; one round trip if it is there already. Raises DeviceError."""
    (root,) = deployer.deploy_sets([runtime_set(runtime)])
    folders = [f"{root}/{folder}" for folder in runtime.library_dirs]
    return DeployedRuntime(runtime, root, process_environment(runtime.target, folders))


def runtime_set(runtime: Runtime) -> FileSet:
    """Return a runtime as a set of files, to deploy it together with others."""
    name = f"qnn-{runtime.qnn_version}-{runtime.key[:KEY_LENGTH]}"
    return FileSet(name, f"QNN {runtime.qnn_version}", runtime.files)
