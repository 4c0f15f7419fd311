"""Files that are fetched once and kept: whole or not there, and hashed before they are used.

Beside each stands a note with its sha256. A file gets its name last, when it is whole and its note
is written. A process that is killed earlier leaves at most a part, which the next one removes.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.ground.errors import InfraError
from harness.ground.files.names_inside import inside
from harness.ground.files.verified_folder import locked
from harness.ground.files.whole_file import disk_errors, read_note, sha256_of, write_json

_log = logging.getLogger(__name__)

Bring = Callable[[Path], tuple[Path, Mapping[str, str]]]
"""Brings a file into an empty folder, and returns what its note is to say besides.

Raises InfraError; OSError.
"""

INCOMING: Final = ".incoming"


@dataclass(frozen=True)
class FetchedFile:
    """A file whose hash was right when it was looked at."""

    path: Path
    sha256: str


class FetchedFiles:
    """Files below `root` by their names there; those of notes end in `note`.

    One process fetches a file while others wait, `timeout_s` seconds at most.
    """

    def __init__(self, root: Path, *, timeout_s: float, note: str = ".json") -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._note = note
        self._looked_at: dict[str, FetchedFile] = {}

    def path(self, name: str) -> Path:
        """Where a file is, or would be. Raises NotInsideError."""
        return inside(self._root, name)

    def is_cached(self, name: str) -> bool:
        """Whether the file is there with its note; it is not hashed for this."""
        return self.path(name).is_file() and self.noted_sha256(name) is not None

    def noted_sha256(self, name: str) -> str | None:
        """What the file should have, also where only its note is left."""
        note = read_note(self._note_path(name))
        return None if note is None else str(note["sha256"])

    def damage(self, name: str, expected: str | None = None) -> list[str]:
        """What is wrong with a file, every byte read; nothing for one that is not there.

        `expected` is the sha256 that it must have, else that of its note.
        """
        damage = self._damage(name, expected)
        return [] if damage is None else [f"{self.path(name).name}: {damage}"]

    def get(
        self, name: str, bring: Bring, *, what: str, expected: str | None = None, anew: bool = False
    ) -> FetchedFile:
        """The file, fetched if it is not there or damaged, or `anew` in any case.

        It is hashed once per process. `what` names it to people; `expected` is the sha256 that it
        must have. Raises InfraError if it does not come, or has another hash.
        """
        if anew or name not in self._looked_at:
            lock = self._root / ".locks" / f"{_key(name)}.lock"
            with locked(lock, f"fetching {what}", timeout_s=self._timeout_s):
                how = self._fetched if anew else self._kept
                self._looked_at[name] = how(name, bring, what, expected)
        return self._looked_at[name]

    def _kept(self, name: str, bring: Bring, what: str, expected: str | None) -> FetchedFile:
        path, damage = self.path(name), self._damage(name, expected)
        if not path.exists():
            return self._fetched(name, bring, what, expected)
        if damage is None:
            noted = self.noted_sha256(name)
            if noted is None and expected is not None:
                self._write_note(name, path, expected, {})
            return FetchedFile(path, expected or str(noted))
        try:
            fetched = self._fetched(name, bring, what, expected)
        except InfraError as error:
            raise InfraError(
                f"cached {path.name} is damaged ({damage}) and could not be fetched again: {error}"
            ) from error
        _log.warning(f"cached {path.name} was damaged: {damage}; it was fetched again")
        return fetched

    def _damage(self, name: str, expected: str | None) -> str | None:
        path, expected = self.path(name), expected or self.noted_sha256(name)
        if not path.exists():
            return None
        if expected is None:
            return "its sha256 is not known"
        try:
            found = sha256_of(path)
        except OSError as error:
            return str(error.strerror or error)
        return None if found == expected else f"sha256 {found}, expected {expected}"

    def _fetched(self, name: str, bring: Bring, what: str, expected: str | None) -> FetchedFile:
        path, folder = self.path(name), self._root / INCOMING / _key(name)
        _log.info(f"fetching {what}")
        began = time.monotonic()
        try:
            with disk_errors(f"{what} cannot be kept in the cache"):
                shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
                folder.mkdir(parents=True, exist_ok=True)
                came, told = bring(folder)
                digest, size = sha256_of(came), came.stat().st_size
                if expected not in (None, digest):
                    raise InfraError(
                        f"what is served as {what} has sha256 {digest}, expected {expected}; it "
                        "was not kept"
                    )
                path.parent.mkdir(parents=True, exist_ok=True)
                self._write_note(name, came, digest, told)
                came.replace(path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        _log.info(f"fetched {size / 1e6:.1f} MB in {time.monotonic() - began:.1f} s")
        return FetchedFile(path, digest)

    def _note_path(self, name: str) -> Path:
        return self.path(f"{name}{self._note}")

    def _write_note(self, name: str, file: Path, sha256: str, told: Mapping[str, str]) -> None:
        fetched = datetime.now(UTC).isoformat(timespec="seconds")
        own = {"sha256": sha256, "size": file.stat().st_size, "fetched": fetched}
        write_json(self._note_path(name), {**told, **own})


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]
