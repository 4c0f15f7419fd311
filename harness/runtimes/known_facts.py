"""What the libraries of runtimes say of themselves, read once and kept below the cache."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from harness.runtimes import elf, library_facts
from harness.runtimes.library_facts import LibraryFacts, read_library
from harness.runtimes.runtime import Runtime
from harness.runtimes.sealed import write_json

_MAX_BYTES: Final = 16 << 20
_FACTS: Final = TypeAdapter(tuple[LibraryFacts, ...])


class KnownFacts:
    """Facts about runtimes by their content: reading 200 MB takes longer than most cases.

    What is kept is lost without harm, and read anew once the code that reads has changed.
    """

    def __init__(self, cache_root: Path) -> None:
        self._root = cache_root / "facts"
        self._known: dict[str, tuple[LibraryFacts, ...]] = {}

    def of(self, runtime: Runtime) -> tuple[LibraryFacts, ...]:
        """The facts of every file, in the runtime's order. Never raises; see `read_library`."""
        if runtime.key not in self._known:
            path = self._root / f"{runtime.key[:32]}-{_reader()[:16]}.json"
            facts = _kept(path, runtime)
            if facts is None:
                facts = tuple(read_library(file.path, file.name) for file in runtime.files)
                _keep(path, facts)
            self._known[runtime.key] = facts
        return self._known[runtime.key]


def build_id_of(facts: tuple[LibraryFacts, ...]) -> str | None:
    """The SDK build that the libraries of a runtime say, a backend's first (pure)."""
    ranked = sorted(facts, key=lambda one: not one.kind.startswith("backend"))
    return next((str(one.build) for one in ranked if one.build and one.build.version), None)


def _kept(path: Path, runtime: Runtime) -> tuple[LibraryFacts, ...] | None:
    try:
        with path.open("rb") as file:
            facts = _FACTS.validate_json(file.read(_MAX_BYTES))
    except (OSError, ValidationError):
        return None
    same = [one.name for one in facts] == [file.name for file in runtime.files]
    return facts if same else None


def _keep(path: Path, facts: tuple[LibraryFacts, ...]) -> None:
    if any(one.problem for one in facts):
        return  # what could not be read now may be readable next time
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, _FACTS.dump_python(facts, mode="json"))
    except OSError:
        return


@cache
def _reader() -> str:
    """What changes when the code changes that reads libraries."""
    code = b"".join(Path(module.__file__ or "").read_bytes() for module in (elf, library_facts))
    return hashlib.sha256(code).hexdigest()
