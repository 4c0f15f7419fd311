"""Finds an Android NDK and the compiler in it that fits a device.

The layout is that of the NDK's own documentation ("Use the NDK with other build systems"):
toolchains/llvm/prebuilt/<host>/bin/aarch64-linux-android<API>-clang, one per API level.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.ground.errors import ConfigError
from harness.ground.files.whole_file import read_bounded

VARIABLES: Final = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK")
_CLANG: Final = "toolchains/llvm/prebuilt/*/bin/aarch64-linux-android*-clang"
_LEVEL: Final = re.compile(r"aarch64-linux-android(\d{1,3})-clang", re.ASCII)
_REVISION: Final = re.compile(r"^Pkg\.Revision\s*=\s*([\w.-]{1,40})", re.MULTILINE | re.ASCII)
_MAX_TEXT_BYTES: Final = 4096


@dataclass(frozen=True)
class Ndk:
    """An NDK: where it is, what named it, its version if known, its compilers by API level."""

    root: Path
    named_by: str
    revision: str | None
    compilers: Mapping[int, Path]

    def compiler(self, device_api: int | None) -> Path:
        """The compiler for a device of this API level; for any phone where that is not known.

        Raises ConfigError if the NDK has none that is old enough, or none at all.
        """
        if not self.compilers:
            why = "is no NDK: it has no toolchains/llvm/prebuilt/*/bin/aarch64-linux-android*-clang"
            raise ConfigError(f"{self.root} {why}", field=self.named_by)
        return self.compilers[fitting_level(self.compilers, device_api, field=self.named_by)]


def find_ndk(environment: Mapping[str, str], path: Path | None = None) -> Ndk | None:
    """The NDK at `path`, else the one that the environment names; None if nothing does."""
    if path is not None:
        return read_ndk(path, "ndk")
    for variable in VARIABLES:
        if root := environment.get(variable, "").strip():
            return read_ndk(Path(root), variable)
    return None


def read_ndk(root: Path, named_by: str) -> Ndk:
    """What is in a folder; a folder that is none has no compilers. Never raises."""
    compilers: dict[int, Path] = {}
    revision = None
    try:
        for path in sorted(root.glob(_CLANG)):
            if found := _LEVEL.fullmatch(path.name):
                compilers.setdefault(int(found[1]), path)
        text = read_bounded(root / "source.properties", _MAX_TEXT_BYTES)
        said = _REVISION.search(text.decode("utf-8", "replace"))
        revision = said[1] if said else None
    except OSError:
        pass
    return Ndk(root, named_by, revision, compilers)


def fitting_level(
    levels: Collection[int], device_api: int | None, *, field: str | None = None
) -> int:
    """The newest API level that a device still has; the oldest where that is not known (pure).

    A program for an older level runs on newer systems, not the other way round. Raises ConfigError.
    """
    if device_api is None:
        return min(levels)
    older = [level for level in levels if level <= device_api]
    if not older:
        raise ConfigError(
            f"the NDK compiles for API {min(levels)} and newer, and the device has {device_api}; "
            "an older NDK is needed",
            field=field,
        )
    return max(older)
