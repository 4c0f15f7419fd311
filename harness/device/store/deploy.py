"""Puts sets of files on a device: only what is not there yet travels, checked by sha256."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.device.store.claims import claims_of, own_claim
from harness.device.store.client import StoreClient
from harness.device.store.delivery import Delivery, TellPush
from harness.device.store.layout import FileSet, names_used
from harness.device.transport.device import Transport
from harness.ground.errors import ConfigError, InternalError
from harness.ground.files.local_file import LocalFile, content_key
from harness.ground.files.verified_folder import valid_name
from harness.ground.files.whole_file import disk_errors, sha256_of
from harness.ground.host.deadline import Deadline

_BASE_TIMEOUT_S = 60.0
_SLOWEST_BYTES_PER_S = 1_500_000
KEY_LENGTH: Final = 20
"""So many digits of its content's key stand in the name of a set."""


class Deployer:
    """Deploys to one device below `workdir`, an absolute path there.

    What this object has deployed is not looked at again: the device is asked once per set. Files
    are read-only on the device, executable or not. Every method raises DeviceError: DeviceRefused
    where the device has no room or does not permit it; nothing half-made stays then. After any
    other error what had arrived stays, and the next deployment goes on from there.

    What it has deployed is claimed: nobody removes it before `release`, unless nothing was deployed
    for a day, which refreshes the claim.

    `cap_bytes` bounds what the store keeps: what was used longest ago goes first, never what is in
    use; a warning tells if that alone is more. By default it is half of what the store and the free
    space have together.

    `claim` is the name under which it says what it uses. An object with the claim of an earlier one
    takes its place; two that deploy to one device at once need a claim each.

    `tell` is told of each push.
    """

    def __init__(
        self,
        device: Transport,
        workdir: str,
        *,
        cap_bytes: int | None = None,
        claim: str | None = None,
        tell: TellPush = lambda push: None,
    ) -> None:
        if not workdir.startswith("/") or any(character in workdir for character in ":;\n\0"):
            raise ConfigError(f"{workdir!r} cannot be a device's work folder", field="workdir")
        self._workdir = workdir.rstrip("/")
        self._store = StoreClient(device, self._workdir)
        self._claim = claim or own_claim()
        self._delivery = Delivery(
            device, self._workdir, self._claim, cap_bytes=cap_bytes, tell=tell
        )
        self._deployed: dict[str, str] = {}
        self._using: dict[str, None] = {}
        self._hashes: dict[tuple[Path, int, int], str] = {}

    def deploy_files(
        self, name: str, files: Mapping[str, Path], programs: Collection[str] = ()
    ) -> str:
        """Puts files into a folder of their own on the device and returns its path.

        `files` are local ones by their name in that folder (slashes); those called as in
        `programs` may be executed there. The same files under the same name go to the same folder.
        `name` is for people.
        """
        return self.deploy_sets([self.file_set(name, files, programs)])[0]

    def file_set(
        self, name: str, files: Mapping[str, Path], programs: Collection[str] = ()
    ) -> FileSet:
        """The set that `deploy_files` would make, to deploy several in one go."""
        found = []
        for own_name, path in files.items():
            if not valid_name(own_name):
                raise InternalError(f"a file on a device cannot be called {own_name[:120]!r}")
            size, sha256 = self._facts(path)
            mode = 0o755 if own_name in programs else 0o644
            found.append(LocalFile(path, own_name, size, sha256, mode))
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "files"
        return FileSet(f"{short}-{content_key(found)[:KEY_LENGTH]}", name, tuple(found))

    def deploy_sets(self, sets: Sequence[FileSet]) -> list[str]:
        """Puts several sets on the device together; their folders, in order.

        One round trip to look; if anything is missing, one stream with the large files and, at
        the same time, a second round trip with the small ones. No round trip for sets that this
        object has deployed before.
        """
        wanted = {one.name: one for one in sets if one.name not in self._deployed}
        if wanted:
            size = sum(file.size for one in wanted.values() for file in one.files)
            deadline = Deadline(_BASE_TIMEOUT_S + size / _SLOWEST_BYTES_PER_S)
            made = self._delivery.deliver(list(wanted.values()), list(self._using), deadline)
            self._using.update(dict.fromkeys(names_used(wanted.values())))
            self._deployed.update(made)
        return [f"{self._workdir}/sets/{self._deployed[one.name]}" for one in sets]

    def forget(self) -> None:
        """Makes the next deployment look at the device again (after a reboot, say)."""
        self._deployed.clear()

    def release(self, *, of_run: bool = False) -> None:
        """Says that nothing of it is used any more, and forgets it; never raises DeviceError.

        `of_run`: nor what other processes of our run deployed.
        """
        if self._using or of_run:
            self._store.release(self._claim, claims_of(self._claim) if of_run else "")
        self._using.clear()
        self._deployed.clear()

    def _facts(self, path: Path) -> tuple[int, str]:
        """Size and sha256 of a local file, hashed once as long as it does not change."""
        with disk_errors(f"cannot read {path}"):
            status = path.stat()
            key = (path, status.st_size, status.st_mtime_ns)
            if key not in self._hashes:
                self._hashes[key] = sha256_of(path)
        return status.st_size, self._hashes[key]
