"""Facts about the libraries of runtimes, kept by their content."""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from harness.ground.files.bounded_json import parse_model
from harness.ground.files.whole_file import read_bounded, write_json
from harness.libraries.runtimes.library_facts import LibraryFacts, read_library
from harness.libraries.runtimes.runtime import Runtime

_MAX_KEPT_BYTES: Final = 16 << 20
_KEPT: Final = TypeAdapter(tuple[LibraryFacts, ...])


class KnownFacts:
    """Facts about runtimes by their content: reading 200 MB takes longer than most cases.

    What is kept may be lost without harm. It is made anew once the code that reads has changed.
    """

    def __init__(self, cache_root: Path) -> None:
        self._root = cache_root / "facts"
        self._known: dict[str, tuple[LibraryFacts, ...]] = {}

    def of(self, runtime: Runtime) -> tuple[LibraryFacts, ...]:
        """The facts of every file, in the runtime's order. Never raises; see `read_library`."""
        if runtime.key not in self._known:
            path = self._root / f"{runtime.key[:32]}-{_reader()[:16]}.json"
            try:
                facts = parse_model(_KEPT, read_bounded(path, _MAX_KEPT_BYTES))
            except (OSError, ValueError):
                facts = ()
            if [one.name for one in facts] != [file.name for file in runtime.files]:
                facts = tuple(read_library(file.path, file.name) for file in runtime.files)
                # what could not be read now may be readable next time
                if not any(one.problem for one in facts):
                    with contextlib.suppress(OSError):
                        path.parent.mkdir(parents=True, exist_ok=True)
                        write_json(path, _KEPT.dump_python(facts, mode="json"))
            self._known[runtime.key] = facts
        return self._known[runtime.key]


@cache
def _reader() -> str:
    """A key that changes with the code that reads libraries."""
    here = Path(__file__)
    code = b"".join(
        file.read_bytes() for file in map(here.with_name, ("elf.py", "library_facts.py"))
    )
    return hashlib.sha256(code).hexdigest()
