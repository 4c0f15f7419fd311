"""Puts runtimes and files on a device: only what is not there yet travels, checked by sha256."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice
from harness.errors import ConfigError, InfraError, InternalError
from harness.qnn.platforms import process_environment
from harness.runtimes.catalog import Runtime, content_key
from harness.runtimes.delivery import Delivery
from harness.runtimes.device_store import FileSet, StoredFile, entry_name, names_used, valid_name
from harness.runtimes.notices import Say, on_terminal
from harness.runtimes.sealed import sha256_of
from harness.runtimes.store_client import StoreClient
from harness.runtimes.use_marks import own_mark

_BASE_TIMEOUT_S = 60.0
_SLOWEST_BYTES_PER_S = 1_500_000
_KEY_LENGTH = 20


@dataclass(frozen=True)
class DeployFile:
    """A local file, its name in the folder it goes to (slashes), and its permission bits."""

    path: Path
    name: str
    mode: int = 0o644


@dataclass(frozen=True)
class DeployedRuntime:
    """A runtime on a device: its folder and what a process needs in its environment to use it."""

    runtime: Runtime
    root: str
    library_path: str
    environment: dict[str, str]

    def library(self, name: str) -> str:
        """The path on the device of a library such as libQnnHtp.so. Raises ConfigError."""
        path = self.runtime.library(name)
        (found,) = (file.name for file in self.runtime.files if file.path == path)
        return f"{self.root}/{found}"


class Deployer:
    """Deploys to one device below `workdir`, an absolute path there.

    What this object has deployed is not looked at again: the device is asked once per set. Files
    are read-only on the device, executable or not. Every method raises DeviceError: DeviceRefused
    where the device has no room or does not permit it; nothing half-made stays then. After any
    other error what had arrived stays, and the next deployment goes on from there.

    What it has deployed is marked as used: nobody removes it before `release`, or before the mark
    was not refreshed for a day (by deploying, or by `refresh`).

    `cap_bytes` bounds what the store keeps: what was used longest ago goes first, never what is in
    use. By default it is half of what the store and the free space have together.

    `mark` is the name under which it says what it uses; whoever passes the one of an earlier
    object takes that one's place. Two objects that deploy to one device need two.
    """

    def __init__(
        self,
        device: AdbDevice,
        workdir: str,
        *,
        notify: Say = on_terminal,
        cap_bytes: int | None = None,
        mark: str | None = None,
    ) -> None:
        if not workdir.startswith("/") or any(character in workdir for character in ":;\n\0"):
            raise ConfigError(f"{workdir!r} cannot be a device's work folder", field="workdir")
        self._workdir = workdir.rstrip("/")
        self._store = StoreClient(device, self._workdir)
        self._mark = mark or own_mark()
        self._delivery = Delivery(
            device, self._workdir, self._mark, notify=notify, cap_bytes=cap_bytes
        )
        self._deployed: dict[str, str] = {}
        self._using: dict[str, None] = {}
        self._hashes: dict[tuple[Path, int, int], str] = {}

    def deploy_runtime(self, runtime: Runtime) -> DeployedRuntime:
        """Puts a runtime on the device; one round trip if it is there already."""
        (root,) = self.deploy_sets([runtime_set(runtime)])
        folders = [f"{root}/{folder}" for folder in runtime.library_dirs]
        library_path = ":".join(folders)
        return DeployedRuntime(
            runtime=runtime,
            root=root,
            library_path=library_path,
            environment=process_environment(runtime.target, folders),
        )

    def deploy_files(self, name: str, files: Sequence[DeployFile]) -> str:
        """Puts files into a folder of their own on the device and returns its path.

        The same files under the same name go to the same folder. `name` is for people.
        """
        return self.deploy_sets([self.file_set(name, files)])[0]

    def file_set(self, name: str, files: Sequence[DeployFile]) -> FileSet:
        """The set that `deploy_files` would make, to deploy several in one go."""
        stored, parts = [], []
        for file in files:
            if not valid_name(file.name):
                raise InternalError(f"a file on a device cannot be called {file.name[:120]!r}")
            size, sha256 = self._facts(file.path)
            stored.append(StoredFile(file.name, file.path, size, entry_name(sha256, file.mode)))
            parts.append((file.name, sha256, file.mode))
        if len({file.name for file in stored}) != len(stored):
            raise InternalError(f"two files of {name} have the same name")
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "files"
        return FileSet(f"{short}-{content_key(parts)[:_KEY_LENGTH]}", name, tuple(stored))

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

    def refresh(self) -> None:
        """Says that all that was deployed is still in use; one round trip."""
        self._store.look([], self._mark, self._using, Deadline(_BASE_TIMEOUT_S))

    def release(self) -> None:
        """Says that nothing of it is used any more, and forgets it; never raises DeviceError."""
        if self._using:
            self._store.release(self._mark)
        self._using.clear()
        self._deployed.clear()

    def _facts(self, path: Path) -> tuple[int, str]:
        """Size and sha256 of a local file, hashed once as long as it does not change."""
        try:
            status = path.stat()
            key = (path, status.st_size, status.st_mtime_ns)
            if key not in self._hashes:
                self._hashes[key] = sha256_of(path)
        except OSError as error:
            raise InfraError(f"cannot read {path}: {error.strerror or error}") from error
        return status.st_size, self._hashes[key]


def runtime_set(runtime: Runtime) -> FileSet:
    """A runtime as the set that `deploy_runtime` makes, to deploy it together with others."""
    files = tuple(
        StoredFile(file.name, file.path, file.size, entry_name(file.sha256, file.mode))
        for file in runtime.files
    )
    name = f"qnn-{runtime.qnn_version}-{runtime.key[:_KEY_LENGTH]}"
    return FileSet(name, f"QNN {runtime.qnn_version}", files)
