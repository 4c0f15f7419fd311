"""The cache of wheels: each fetched once by pip, and hashed before it is used."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from harness.errors import InfraError
from harness.runtimes.known_wheels import KNOWN_SHA256
from harness.runtimes.notices import Say, on_stderr, on_terminal
from harness.runtimes.pip import pip_download
from harness.runtimes.sealed import locked, read_note, sha256_of, write_json

FETCH_TIMEOUT_S: Final = 1800.0
"""Enough for 100 MB over a line of 0.5 Mbit/s."""


@dataclass(frozen=True)
class WheelRequest:
    """One wheel of a package index: project, version and the tags that pip chooses by.

    `platform` as in manylinux_2_35_x86_64, `python` as in 3.12, `abi` as in cp312.
    """

    project: str
    version: str
    platform: str
    python: str
    abi: str

    @property
    def file_name(self) -> str:
        """Its name in the cache, made of what was asked for; the index may call it otherwise."""
        interpreter = "cp" + self.python.replace(".", "")
        project = self.project.replace("-", "_")
        return f"{project}-{self.version}-{interpreter}-{self.abi}-{self.platform}.whl"

    @property
    def pip_options(self) -> tuple[str, ...]:
        """The options that make pip choose this wheel, whatever computer it runs on."""
        return (
            *("--platform", self.platform),
            *("--python-version", self.python),
            *("--implementation", "cp"),
            *("--abi", self.abi),
        )

    def __str__(self) -> str:
        return f"{self.project} {self.version} ({self.platform})"


@dataclass(frozen=True)
class CachedWheel:
    """A wheel in the cache whose hash was right when it was looked at (size in bytes)."""

    path: Path
    sha256: str
    size: int


class WheelCache:
    """Wheels below `root`, each with a note beside it that holds its sha256.

    Every wheel is hashed once per process before it is handed out. `known` are the hashes that a
    wheel must have, by file name in the cache; others are trusted when first fetched. `notify`
    gets progress, `warn` what the user should see even in a pipe.
    """

    def __init__(
        self,
        root: Path,
        *,
        notify: Say = on_terminal,
        warn: Say = on_stderr,
        known: Mapping[str, str] = KNOWN_SHA256,
        timeout_s: float = FETCH_TIMEOUT_S,
    ) -> None:
        self._root = root
        self._notify = notify
        self._warn = warn
        self._known = known
        self._timeout_s = timeout_s
        self._looked_at: dict[WheelRequest, CachedWheel] = {}

    def is_cached(self, request: WheelRequest) -> bool:
        """Whether the wheel is in the cache; it is not hashed for this."""
        return self._path(request).is_file() and self._note(request) is not None

    def is_kept(self, request: WheelRequest) -> bool:
        """Whether anything of the wheel is in the cache, whole or damaged."""
        return self._path(request).exists()

    def fetch(self, request: WheelRequest) -> CachedWheel:
        """The wheel, fetched by pip if it is not there or damaged.

        Raises InfraError if it cannot be fetched, or if what comes is not what it should be.
        """
        if request not in self._looked_at:
            lock = self._root / ".locks" / f"{request.file_name}.lock"
            what = f"fetching {request}"
            with locked(lock, what, timeout_s=self._timeout_s, notify=self._notify):
                self._looked_at[request] = self._fetch(request)
        return self._looked_at[request]

    def damage(self, request: WheelRequest) -> list[str]:
        """What is wrong with a wheel of the cache; nothing for one that is not there."""
        if not self._path(request).exists():
            return []
        damage = self._damage(self._path(request), self._expected(request))
        return [f"{request.file_name}: {damage}"] if damage else []

    def _expected(self, request: WheelRequest) -> str | None:
        return self._known.get(request.file_name) or (self._note(request) or {}).get("sha256")

    def _fetch(self, request: WheelRequest) -> CachedWheel:
        path = self._path(request)
        note = self._note(request)
        expected = self._expected(request)
        if not path.exists():
            return self._download(request, expected)
        damage = self._damage(path, expected)
        if damage is None:
            assert expected is not None
            if note is None:
                self._write_note(request, path, expected)
            return CachedWheel(path, expected, path.stat().st_size)
        try:
            wheel = self._download(request, expected)
        except InfraError as error:
            raise InfraError(
                f"cached wheel {path.name} is damaged ({damage}) and could not be fetched again: "
                f"{error}"
            ) from error
        self._warn(f"cached wheel {path.name} was damaged: {damage}; it was fetched again")
        return wheel

    def _damage(self, path: Path, expected: str | None) -> str | None:
        if expected is None:
            return "its sha256 is not known"
        try:
            found = sha256_of(path)
        except OSError as error:
            return str(error.strerror or error)
        return None if found == expected else f"sha256 {found}, expected {expected}"

    def _download(self, request: WheelRequest, expected: str | None) -> CachedWheel:
        folder = self._root / ".incoming" / request.file_name
        self._notify(f"fetching {request}")
        began = time.monotonic()
        try:
            # A process that was ended in the middle may have left its part; we hold the lock.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            wheel = self._from_pip(request, folder)
            digest, size = sha256_of(wheel), wheel.stat().st_size
            if expected is not None and digest != expected:
                raise InfraError(
                    f"what the package index serves as {request} has sha256 {digest}, expected "
                    f"{expected}; it was not kept"
                )
            self._write_note(request, wheel, digest)
            wheel.replace(self._path(request))
        except OSError as error:
            raise InfraError(f"{request} cannot be kept in the cache: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._notify(f"fetched {size / 1e6:.1f} MB in {time.monotonic() - began:.1f} s")
        return CachedWheel(self._path(request), digest, size)

    def _from_pip(self, request: WheelRequest, folder: Path) -> Path:
        requirement = f"{request.project}=={request.version}"
        try:
            wheel = pip_download(requirement, request.pip_options, folder, self._timeout_s)
        except InfraError as error:
            raise InfraError(
                f"could not fetch {request}: {error}. Connect this computer to a package index "
                "(pip's own configuration is used), or name a folder that holds the wheel in "
                "PIP_FIND_LINKS"
            ) from error
        project, version = (*wheel.name.split("-"), "")[:2]
        if (project.lower().replace("_", "-"), version) != (request.project, request.version):
            raise InfraError(f"pip was asked for {request} and brought {wheel.name[:120]}")
        return wheel

    def _path(self, request: WheelRequest) -> Path:
        return self._root / request.file_name

    def _note_path(self, request: WheelRequest) -> Path:
        return self._root / f"{request.file_name}.json"

    def _note(self, request: WheelRequest) -> dict[str, Any] | None:
        return read_note(self._note_path(request))

    def _write_note(self, request: WheelRequest, wheel: Path, sha256: str) -> None:
        note = {
            "sha256": sha256,
            "size": wheel.stat().st_size,
            "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
            "served_as": wheel.name,
            "trust": "known" if request.file_name in self._known else "first use",
        }
        write_json(self._note_path(request), note)
