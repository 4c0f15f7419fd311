"""Which QNN version and target libraries are of, by what stands beside them and in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import ConfigError
from harness.runtimes.library_facts import Kind, LibraryFacts, SdkBuild

# sdk.yaml of QAIRT has "key: value" lines; ONNX Runtime's build takes its `version` the same way
# (setup.py, parse_qnn_version_from_sdk_yaml).
_YAML = re.compile(r"^version:\s*[\"']?v?(\d[\w.]{0,60})[\"']?\s*(?:#.*)?$", re.MULTILINE)
# As in the headers of QAIRT and in its logs: "v2.28.2.241116104011_103376".
_HEADER = re.compile(r"QNN_SDK_BUILD_ID\s+\"v?(\d[\w.]{0,60})\"")
_FOLDER = re.compile(
    r"(?<![\d.])(\d{1,3}\.\d{1,3}\.\d{1,3}(?:\.\d{6,12}(?:_\d{1,12})?)?)(?![\d.]*\d)"
)
_BUILD = re.compile(r"(\d{1,3}\.\d{1,3}\.\d{1,3})(?:\.(\d{6})(\d{0,6}))?(?:_\w*)?", re.ASCII)

_TELLING: tuple[Kind, ...] = (
    "backend-htp",
    "backend-gpu",
    "backend-cpu",
    "prepare",
    "stub",
    "skel",
)


@dataclass(frozen=True)
class SaidVersion:
    """A QNN version as options name it (2.31.0.250130), and the build it stands for if it is said.

    `build_id` as in 2.31.0.250130151446.
    """

    version: str
    build_id: str | None = None


def short_version(text: str) -> SaidVersion | None:
    """A build's text as a version with its day, None for anything else (pure)."""
    found = _BUILD.fullmatch(text.strip().removeprefix("v"))
    if found is None:
        return None
    version, day, _ = found.groups()
    if day is None:
        return SaidVersion(version)
    return SaidVersion(f"{version}.{day}", text.strip().removeprefix("v"))


def given_version(text: str, field: str) -> SaidVersion:
    """The version that a user has named. Raises ConfigError if it is none (pure)."""
    said = short_version(text)
    if said is None:
        raise ConfigError(
            f"{text[:80]!r} is no QNN version, as in 2.31.0 or 2.31.0.250130", field=field
        )
    return said


def sdk_version(sdk_yaml: str | None, header: str | None, folder: str) -> SaidVersion | None:
    """The version of a QAIRT tree: its sdk.yaml, else QnnSdkBuildId.h, else its name (pure).

    The header often knows the build where sdk.yaml has only the version.
    """
    from_yaml = _first(_YAML, sdk_yaml)
    from_header = _first(_HEADER, header)
    if from_yaml and from_header and f"{from_header.version}.".startswith(f"{from_yaml.version}."):
        return from_header
    return from_yaml or from_header or _first(_FOLDER, folder)


def library_version(facts: Iterable[LibraryFacts]) -> SaidVersion | None:
    """The version that the libraries say, the backends first (pure)."""
    builds: dict[Kind, SdkBuild] = {}
    for library in facts:
        if library.build is not None and library.build.version:
            builds.setdefault(library.kind, library.build)
    for kind in _TELLING:
        if kind in builds:
            return short_version(str(builds[kind]))
    return None


def library_target(facts: Iterable[LibraryFacts]) -> str | None:
    """The target that the libraries are for, by the first that shows it (pure)."""
    for library in facts:
        elf = library.elf
        if elf is None or elf.libc is None:
            continue
        target = {
            ("aarch64", "bionic"): "android-arm64",
            ("aarch64", "glibc"): "linux-arm64",
            ("x86-64", "glibc"): "linux-x64",
        }.get((elf.machine, elf.libc))
        if target is not None:
            return target
    return None


def _first(pattern: re.Pattern[str], text: str | None) -> SaidVersion | None:
    found = pattern.search(text or "")
    return short_version(found[1]) if found else None
