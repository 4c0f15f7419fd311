"""What changed between two sets of libraries: files, sizes, exported symbols, needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Self

from pydantic import BaseModel

from harness.ground.files.local_file import LocalFile
from harness.ground.files.whole_file import read_bounded
from harness.libraries.runtimes.elf import ElfError, exported_symbols, read_elf
from harness.libraries.runtimes.library_facts import MAX_LIBRARY_BYTES

# libonnxruntime.so.1.24.1 and libstdc++-1a2b3c4d.so.6 are the same library in another version.
_NUMBERED: Final = re.compile(r"(?:-[0-9a-f]{8})?\.so(?:\.\d+)+$", re.ASCII)
_HASHED: Final = re.compile(r"-[0-9a-f]{8}\.so$", re.ASCII)
_LISTED: Final = 200


@dataclass(frozen=True)
class _Content:
    """What is compared of a file besides its bytes; `problem` says why that is not known."""

    symbols: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    problem: str | None = None


class NameList(BaseModel, extra="forbid", frozen=True):
    """The first 200 of a list of names, sorted, and how many it has."""

    count: int
    names: list[str]

    @classmethod
    def of(cls, names: Collection[str]) -> Self:
        """The list of these."""
        return cls(count=len(names), names=sorted(names)[:_LISTED])


class FileChange(BaseModel, extra="forbid", frozen=True):
    """A file that both have, with other bytes; `needs` are ELF needs.

    `problem` says why symbols and needs could not be told.
    """

    name: str
    size_before: int
    size_after: int
    symbols_gone: NameList
    symbols_new: NameList
    needs_gone: NameList
    needs_new: NameList
    problem: str | None


class Difference(BaseModel, extra="forbid", frozen=True):
    """What changed: {name: size} of files that only one side has, changed ones, equal ones."""

    gone: dict[str, int]
    new: dict[str, int]
    same: list[str]
    changed: list[FileChange]


def difference(before: Iterable[LocalFile], after: Iterable[LocalFile]) -> Difference:
    """Compares the files of two runtimes, reading those that differ. Never raises."""
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
    old, new = _content(before), _content(after)
    problem = old.problem or new.problem
    if problem is not None:
        old = new = _Content()
    return FileChange(
        name=plain_name(before.name),
        size_before=before.size,
        size_after=after.size,
        symbols_gone=NameList.of(old.symbols - new.symbols),
        symbols_new=NameList.of(new.symbols - old.symbols),
        needs_gone=NameList.of(old.needs - new.needs),
        needs_new=NameList.of(new.needs - old.needs),
        problem=problem,
    )


def plain_name(name: str) -> str:
    """A library's name without the version or hash that stands in it (pure)."""
    return _HASHED.sub(".so", _NUMBERED.sub(".so", name))


def _by_name(files: Iterable[LocalFile]) -> dict[str, LocalFile]:
    return {plain_name(file.name): file for file in files}


def _content(file: LocalFile) -> _Content:
    try:
        data = read_bounded(file.path, MAX_LIBRARY_BYTES)
        facts = read_elf(data)
        versions = (f"{version} of {library}" for library, version in facts.version_needs)
        return _Content(exported_symbols(data), frozenset((*facts.needed, *versions)))
    except ElfError as error:
        return _Content(problem=str(error))
    except OSError as error:
        return _Content(problem=f"it cannot be read: {error.strerror}")
