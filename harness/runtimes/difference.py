"""What changed between two sets of libraries: files, sizes, exported symbols, needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.runtimes.elf import ElfError, ElfFacts, read_elf
from harness.runtimes.elf_symbols import exported_symbols
from harness.runtimes.library_facts import MAX_LIBRARY_BYTES
from harness.runtimes.runtime import RuntimeFile

# libonnxruntime.so.1.24.1 and libstdc++-1a2b3c4d.so.6 are the same library in another version.
_NUMBERED: Final = re.compile(r"(?:-[0-9a-f]{8})?\.so(?:\.\d+)+$", re.ASCII)
_HASHED: Final = re.compile(r"-[0-9a-f]{8}\.so$", re.ASCII)


@dataclass(frozen=True)
class Content:
    """What of a file is compared besides its bytes; `problem` says why it is not known."""

    symbols: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    problem: str | None = None


@dataclass(frozen=True)
class FileChange:
    """A file that both have, with other bytes. Names are sorted; `needs` are ELF needs.

    `problem` says why symbols and needs could not be told.
    """

    name: str
    size_before: int
    size_after: int
    symbols_gone: tuple[str, ...] = ()
    symbols_new: tuple[str, ...] = ()
    needs_gone: tuple[str, ...] = ()
    needs_new: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Difference:
    """What changed: {name: size} of files that only one side has, changed ones, equal ones."""

    gone: Mapping[str, int]
    new: Mapping[str, int]
    changed: tuple[FileChange, ...]
    same: tuple[str, ...]


def difference(before: Iterable[RuntimeFile], after: Iterable[RuntimeFile]) -> Difference:
    """Compares the files of two runtimes, reading those that differ. Never raises."""
    old, new = _by_name(before), _by_name(after)
    both = [name for name in old if name in new]
    return Difference(
        gone={name: file.size for name, file in old.items() if name not in new},
        new={name: file.size for name, file in new.items() if name not in old},
        changed=tuple(
            change_of(
                name, old[name].size, new[name].size, _content(old[name]), _content(new[name])
            )
            for name in both
            if old[name].sha256 != new[name].sha256
        ),
        same=tuple(name for name in both if old[name].sha256 == new[name].sha256),
    )


def change_of(
    name: str, size_before: int, size_after: int, before: Content, after: Content
) -> FileChange:
    """What changed in one file (pure)."""
    problem = before.problem or after.problem
    if problem is not None:
        return FileChange(name, size_before, size_after, problem=problem)
    return FileChange(
        name,
        size_before,
        size_after,
        tuple(sorted(before.symbols - after.symbols)),
        tuple(sorted(after.symbols - before.symbols)),
        tuple(sorted(before.needs - after.needs)),
        tuple(sorted(after.needs - before.needs)),
    )


def plain_name(name: str) -> str:
    """A library's name without the version or hash that stands in it (pure)."""
    return _HASHED.sub(".so", _NUMBERED.sub(".so", name))


def _by_name(files: Iterable[RuntimeFile]) -> dict[str, RuntimeFile]:
    return {plain_name(file.name): file for file in files}


def _content(file: RuntimeFile) -> Content:
    try:
        data = _bytes_of(file.path)
        return Content(exported_symbols(data), frozenset(_needs(read_elf(data))))
    except ElfError as error:
        return Content(problem=str(error))
    except OSError as error:
        return Content(problem=f"it cannot be read: {error.strerror}")


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as stream:
        data = stream.read(MAX_LIBRARY_BYTES + 1)
    if len(data) > MAX_LIBRARY_BYTES:
        raise ElfError("it is too large")
    return data


def _needs(facts: ElfFacts) -> Iterable[str]:
    yield from facts.needed
    for library, version in facts.version_needs:
        yield f"{version} of {library}"
