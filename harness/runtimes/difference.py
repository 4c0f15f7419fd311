"""Difference of two sets of libraries: files, sizes, needed libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel

from harness.core.local_file import LocalFile
from harness.core.whole_file import read_bounded
from harness.runtimes.elf import ElfError, read_elf
from harness.runtimes.runtime import MAX_LIBRARY_BYTES

# libonnxruntime.so.1.24.1 and libstdc++-1a2b3c4d.so.6 are the same library in another version.
_NUMBERED: Final = re.compile(r"(?:-[0-9a-f]{8})?\.so(?:\.\d+)+$", re.ASCII)
_HASHED: Final = re.compile(r"-[0-9a-f]{8}\.so$", re.ASCII)


class FileChange(BaseModel, extra="forbid", frozen=True):
    """A file with different bytes in both; of ELF files, changes of needed libraries and versions.

    `problem` says why these are unknown.
    """

    name: str
    size_before: int
    size_after: int
    needs_gone: list[str]
    needs_new: list[str]
    problem: str | None


class Difference(BaseModel, extra="forbid", frozen=True):
    """Difference: {name: size} of files that only one side has, changed files, equal files."""

    gone: dict[str, int]
    new: dict[str, int]
    same: list[str]
    changed: list[FileChange]


def difference(before: Iterable[LocalFile], after: Iterable[LocalFile]) -> Difference:
    """Compare the files of two runtimes, reading those that differ. Never raises."""
    old, new = _by_name(before), _by_name(after)
    both = [name for name in old if name in new]
    return Difference(
        gone={name: file.size for name, file in old.items() if name not in new},
        new={name: file.size for name, file in new.items() if name not in old},
        same=[name for name in both if old[name].sha256 == new[name].sha256],
        changed=[
            _change(old[name], new[name]) for name in both if old[name].sha256 != new[name].sha256
        ],
    )


def _change(before: LocalFile, after: LocalFile) -> FileChange:
    problem, old, new = None, set[str](), set[str]()
    try:
        old, new = _needs(before), _needs(after)
    except ElfError as error:
        problem, old = str(error), set()
    except OSError as error:
        problem, old = f"it cannot be read: {error.strerror}", set()
    return FileChange(
        name=plain_name(before.name),
        size_before=before.size,
        size_after=after.size,
        needs_gone=sorted(old - new),
        needs_new=sorted(new - old),
        problem=problem,
    )


def plain_name(name: str) -> str:
    """Return a library's name without its version or hash (pure)."""
    return _HASHED.sub(".so", _NUMBERED.sub(".so", name))


def _by_name(files: Iterable[LocalFile]) -> dict[str, LocalFile]:
    return {plain_name(file.name): file for file in files}


def _needs(file: LocalFile) -> set[str]:
    facts = read_elf(read_bounded(file.path, MAX_LIBRARY_BYTES))
    return {*facts.needed, *(f"{version} of {library}" for library, version in facts.version_needs)}
