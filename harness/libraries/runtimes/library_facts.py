"""What libraries say of themselves: kind, HTP arch, SDK build, target; read once and kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.ground.errors import ConfigError
from harness.ground.facts.platforms import PLATFORMS
from harness.ground.files.whole_file import read_bounded
from harness.libraries.runtimes.elf import ElfError, ElfFacts, read_elf

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

# Where builds stand, found in all libraries of QNN 2.47.0 to 2.51.0 for x86-64 and aarch64:
# v2.51.0.260929181845 in backends, stubs, skels and libQnnHtpPrepare.so. Logs of other SDKs show
# a number more, v2.28.2.241116104011_103376 (pytorch/executorch#8762). libQnnSystem.so has only
# the time, 260929181845, as a string of its own.
_BUILD = re.compile(rb"v(\d{1,3}\.\d{1,3}\.\d{1,3})\.(\d{12}|\d{6})(?!\d)")
_STAMP = re.compile(
    rb"(?<![0-9A-Za-z])(2\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[01]\d|2[0-3])[0-5]\d[0-5]\d)(?=\0)"
)
_AISW = re.compile(rb"AISW_VERSION: (\d{1,3}\.\d{1,3}\.\d{1,3})(?!\d)")

# Plug-ins that ask ORT for its API version before they use it have this text (2.4.0 and newer).
_NEGOTIATES = b"QNN EP requires ORT >= 1."
_ORT_DEFINES = re.compile(r"VERS_(\d{1,4}\.\d{1,4}\.\d{1,4})", re.ASCII)

# sdk.yaml of QAIRT has "key: value" lines; ONNX Runtime's build takes its `version` the same way
# (setup.py, parse_qnn_version_from_sdk_yaml).
_YAML = re.compile(r"^version:\s*[\"']?v?(\d[\w.]{0,60})[\"']?\s*(?:#.*)?$", re.MULTILINE)
# As in the headers of QAIRT and in its logs: "v2.28.2.241116104011_103376".
_HEADER = re.compile(r"QNN_SDK_BUILD_ID\s+\"v?(\d[\w.]{0,60})\"")
_FOLDER = re.compile(
    r"(?<![\d.])(\d{1,3}\.\d{1,3}\.\d{1,3}(?:\.\d{6,12}(?:_\d{1,12})?)?)(?![\d.]*\d)"
)
_VERSION = re.compile(r"(\d{1,3}\.\d{1,3}\.\d{1,3})(?:\.(\d{6})(\d{0,6}))?(?:_\w*)?", re.ASCII)
TELLING: Final[tuple[LibraryKind, ...]] = (
    "backend-htp",
    "backend-gpu",
    "backend-cpu",
    "stub",
    "skel",
    "prepare",
    "ort-plugin",
)
"""The kinds of libraries that name their SDK's build; those before others are believed first."""


@dataclass(frozen=True)
class SdkBuild:
    """A build of the SDK: its version and the time it was made (yymmddhhmmss, or yymmdd).

    `version` or `stamp` is empty where a library does not say it.
    """

    version: str
    stamp: str

    def agrees_with(self, other: SdkBuild) -> bool:
        """Whether both can be the same build, as far as both say."""
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
    """What one library is.

    `name` is its name inside the runtime, with slashes. `htp_arch` is the 73 of a stub's or
    skel's name, `content_arch` the one that the content says (SONAME, machine of the code).
    `build` is None where the file names none, or several. `problem` says why `elf` is None.
    `negotiates` is whether an ORT plug-in adapts to the ORT that loads it.
    """

    name: str
    kind: LibraryKind
    htp_arch: int | None = None
    content_arch: int | None = None
    elf: ElfFacts | None = None
    problem: str | None = None
    build: SdkBuild | None = None
    ort_version: str | None = None
    negotiates: bool = False

    @property
    def file_name(self) -> str:
        return self.name.rsplit("/", 1)[-1]


def kind_of(name: str) -> tuple[LibraryKind, int | None]:
    """What a library is by its name, and the HTP arch of a stub or skel (pure)."""
    file_name = name.rsplit("/", 1)[-1]
    for pattern, kind in _NAMES:
        if found := pattern.fullmatch(file_name):
            return kind, int(found[1]) if pattern.groups else None
    return "other", None


def library_facts(name: str, data: bytes) -> LibraryFacts:
    """What the library called `name` is, from all its bytes (pure). Never raises."""
    kind, htp_arch = kind_of(name)
    try:
        elf = read_elf(data)
    except ElfError as error:
        return LibraryFacts(name, kind, htp_arch, problem=str(error))
    own_kind, own_arch = kind_of(elf.soname) if elf.soname else (kind, None)
    if kind == "skel" and elf.hexagon_arch is not None:
        own_arch = elf.hexagon_arch
    defined = [found[1] for text in elf.versions if (found := _ORT_DEFINES.fullmatch(text))]
    return LibraryFacts(
        name=name,
        kind=kind,
        htp_arch=htp_arch,
        content_arch=own_arch if own_kind in ("stub", "skel") or kind == "skel" else None,
        elf=elf,
        build=_build_of(kind, data),
        ort_version=defined[0] if kind == "ort" and len(defined) == 1 else None,
        negotiates=kind == "ort-plugin" and _NEGOTIATES in data,
    )


def read_library(path: Path, name: str) -> LibraryFacts:
    """What the library at `path`, called `name` in its runtime, is; a file that cannot be read
    is a fact too.

    Mind that the whole file is read: a tenth of a second for 100 MB.
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
    found = _distinct((match[1], match[2]) for match in _BUILD.finditer(data))
    if not found and kind == "system":
        found = _distinct((b"", match[1]) for match in _STAMP.finditer(data))
    if not found:
        found = _distinct((match[1], b"") for match in _AISW.finditer(data))
    if len(found) != 1:
        return None
    version, stamp = found.pop()
    return SdkBuild(version.decode(), stamp.decode())


def _distinct(found: Iterable[tuple[bytes, bytes]]) -> set[tuple[bytes, bytes]]:
    """The different builds, at most two: more tell nothing, and a file could hold millions."""
    different: set[tuple[bytes, bytes]] = set()
    for one in found:
        different.add(one)
        if len(different) > 1:
            break
    return different


def short_version(text: str) -> str | None:
    """A build's text as options name its version, with its day (2.31.0.250130) (pure).

    None for anything else.
    """
    found = _VERSION.fullmatch(text.strip().removeprefix("v"))
    if found is None:
        return None
    version, day, _ = found.groups()
    return version if day is None else f"{version}.{day}"


def given_version(text: str, field: str) -> str:
    """The version that a user has named. Raises ConfigError if it is none (pure)."""
    version = short_version(text)
    if version is None:
        raise ConfigError(
            f"{text[:80]!r} is no QNN version, as in 2.31.0 or 2.31.0.250130", field=field
        )
    return version


def sdk_version(sdk_yaml: str | None, header: str | None, folder: str) -> str | None:
    """The version of a QAIRT tree: its sdk.yaml, else QnnSdkBuildId.h, else its name (pure).

    The header often knows the build where sdk.yaml has only the version.
    """
    from_yaml = _first(_YAML, sdk_yaml)
    from_header = _first(_HEADER, header)
    if from_yaml and from_header and f"{from_header}.".startswith(f"{from_yaml}."):
        return from_header
    return from_yaml or from_header or _first(_FOLDER, folder)


def library_version(facts: Iterable[LibraryFacts]) -> str | None:
    """The version that the libraries say, the backends first (pure)."""
    build = build_id_of(facts)
    return None if build is None else short_version(build)


def library_target(facts: Iterable[LibraryFacts]) -> str | None:
    """The target that the libraries are for, by the first that shows it (pure)."""
    for elf in (one.elf for one in facts if one.elf):
        for target, system in PLATFORMS.items():
            if (elf.machine, elf.libc) == (system.machine, system.libc):
                return target
    return None


def _first(pattern: re.Pattern[str], text: str | None) -> str | None:
    found = pattern.search(text or "")
    return short_version(found[1]) if found else None


def build_id_of(facts: Iterable[LibraryFacts]) -> str | None:
    """The SDK build that the libraries of a runtime say, a backend's first (pure)."""
    telling = [one for one in facts if one.kind in TELLING and one.build and one.build.version]
    first = min(telling, key=lambda one: TELLING.index(one.kind), default=None)
    return None if first is None else str(first.build)
