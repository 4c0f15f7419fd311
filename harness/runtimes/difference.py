"""Difference of two sets of libraries: files and sizes (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel

from harness.core.files import LocalFile

# libonnxruntime.so.1.24.1 and libstdc++-1a2b3c4d.so.6 are the same library in another version.
_NUMBERED: Final = re.compile(r"(?:-[0-9a-f]{8})?\.so(?:\.\d+)+$", re.ASCII)
_HASHED: Final = re.compile(r"-[0-9a-f]{8}\.so$", re.ASCII)


class FileChange(BaseModel, extra="forbid", frozen=True):
    """A file with different bytes in both."""

    name: str
    size_before: int
    size_after: int


class Difference(BaseModel, extra="forbid", frozen=True):
    """Difference: {name: size} of files that only one side has, changed files, equal files."""

    gone: dict[str, int]
    new: dict[str, int]
    same: list[str]
    changed: list[FileChange]


def difference(before: Iterable[LocalFile], after: Iterable[LocalFile]) -> Difference:
    """Compare the files of two runtimes."""
    old, new = ({plain_name(file.name): file for file in files} for files in (before, after))
    both = [name for name in old if name in new]
    return Difference(
        gone={name: file.size for name, file in old.items() if name not in new},
        new={name: file.size for name, file in new.items() if name not in old},
        same=[name for name in both if old[name].sha256 == new[name].sha256],
        changed=[
            FileChange(name=name, size_before=old[name].size, size_after=new[name].size)
            for name in both
            if old[name].sha256 != new[name].sha256
        ],
    )


def plain_name(name: str) -> str:
    """Return a library's name without its version or hash (pure)."""
    return _HASHED.sub(".so", _NUMBERED.sub(".so", name))
