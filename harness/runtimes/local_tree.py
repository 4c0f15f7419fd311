"""What sources on the user's own disk have in common: files where they lie, hashed by a ledger."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from harness.errors import ConfigError
from harness.runtimes.device_store import valid_name
from harness.runtimes.ledger import Ledger
from harness.runtimes.library_facts import LibraryFacts, kind_of, read_library
from harness.runtimes.runtime import Runtime, RuntimeFile, content_key
from harness.runtimes.said_versions import SaidVersion

MAX_FILES: Final = 2000
_PROGRAM_MODE: Final = 0o755
_LIBRARY_MODE: Final = 0o644


def local_runtime(
    files: Mapping[str, Path],
    ledger: Ledger,
    *,
    source: str,
    said: SaidVersion,
    target: str,
    root: Path,
) -> Runtime:
    """A runtime of files that stay where they are; `files` by their name in the runtime.

    Raises InfraError if one cannot be read.
    """
    hashed = ledger.hashed(files)
    made = tuple(
        RuntimeFile(path, name, hashed[name].size, hashed[name].sha256, _mode(name))
        for name, path in sorted(files.items())
    )
    return Runtime(
        qnn_version=said.version,
        build_id=said.build_id,
        target=target,
        key=content_key((file.name, file.sha256, file.mode) for file in made),
        root=root,
        files=made,
        library_dirs=library_folders(files),
        source=source,
        ort_version=ort_version_of(files),
    )


def library_folders(names: Mapping[str, Path]) -> tuple[str, ...]:
    """The folders inside a runtime that hold libraries, the outermost first (pure)."""
    folders = {str(PurePosixPath(name).parent) for name in names if is_library(name)}
    return tuple(sorted(folders, key=lambda folder: (folder.count("/"), folder)))


def is_library(name: str) -> bool:
    """Whether a file is a shared library by its name: libx.so, libx.so.1.2 (pure)."""
    file_name = name.rsplit("/", 1)[-1]
    return file_name.endswith(".so") or ".so." in file_name


def telling_facts(files: Mapping[str, Path]) -> list[LibraryFacts]:
    """What the libraries say that name their SDK's build: backends first, then the others."""
    kinds = ("backend-htp", "backend-gpu", "backend-cpu", "stub", "skel", "prepare", "ort-plugin")
    ranked = sorted(
        (name for name in files if kind_of(name)[0] in kinds),
        key=lambda name: (kinds.index(kind_of(name)[0]), name),
    )
    # One says it, and each is read as a whole.
    found = []
    for name in ranked:
        facts = read_library(files[name], name)
        found.append(facts)
        if facts.build is not None and facts.build.version and facts.elf and facts.elf.libc:
            break
    return found


def listed_files(folder: Path, prefix: str, *, field: str, depth: int = 1) -> dict[str, Path]:
    """{prefix/relative name: path} of the files below a folder; raises ConfigError."""
    found: dict[str, Path] = {}
    try:
        for where, folders, files in os.walk(folder, followlinks=False):
            below = Path(where).relative_to(folder)
            if len(below.parts) >= depth - 1:
                folders.clear()
            folders.sort()
            for file in sorted(files):
                path = Path(where) / file
                name = (PurePosixPath(prefix) / below.as_posix() / file).as_posix()
                if path.is_file() and valid_name(name):
                    found[name] = path
            if len(found) > MAX_FILES:
                raise ConfigError(f"{folder} has more than {MAX_FILES} files", field=field)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror}", field=field) from error
    return found


def _mode(name: str) -> int:
    return _LIBRARY_MODE if is_library(name) else _PROGRAM_MODE


def ort_version_of(files: Mapping[str, Path]) -> str | None:
    """The version of the ORT among these files; None if there is none, or it does not say."""
    for name, path in files.items():
        if kind_of(name)[0] == "ort":
            return read_library(path, name).ort_version
    return None
