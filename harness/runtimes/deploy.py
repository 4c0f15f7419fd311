"""Puts runtimes and files on a device: only what is not there yet travels, checked by sha256."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice, PushItem
from harness.errors import ConfigError, DeviceError, DeviceRefused, InfraError, InternalError
from harness.runtimes.catalog import Runtime, content_key
from harness.runtimes.device_store import (
    FileSet,
    Incoming,
    StoredFile,
    StoreView,
    entry_name,
    names_used,
    valid_name,
)
from harness.runtimes.eviction import plan_eviction
from harness.runtimes.notices import Say, on_terminal
from harness.runtimes.parcel import SMALL_BYTES, Parcel, Removal, archive, make_parcel
from harness.runtimes.sealed import sha256_of
from harness.runtimes.store_client import StoreClient
from harness.runtimes.use_marks import is_dead, own_mark

# Where the fastrpc libraries of Qualcomm's Linux and Android images look for DSP code besides the
# folders that they are given (QAIRT docs, "Running a model on the HTP backend").
_DSP_FOLDERS: Final = (
    "/vendor/dsp/cdsp",
    "/vendor/lib/rfsa/adsp",
    "/system/lib/rfsa/adsp",
    "/dsp",
)
_BASE_TIMEOUT_S = 60.0
_SLOWEST_BYTES_PER_S = 1_500_000
_KEY_LENGTH = 20
_ATTEMPTS = 3
_CAP_FRACTION = 0.5
_SPARE_BYTES = 16 << 20
_IDLE_S = 600


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
    """

    def __init__(
        self,
        device: AdbDevice,
        workdir: str,
        *,
        notify: Say = on_terminal,
        cap_bytes: int | None = None,
    ) -> None:
        if not workdir.startswith("/") or any(character in workdir for character in ":;\n\0"):
            raise ConfigError(f"{workdir!r} cannot be a device's work folder", field="workdir")
        self._device = device
        self._workdir = workdir.rstrip("/")
        self._store = StoreClient(device, self._workdir)
        self._notify = notify
        self._cap_bytes = cap_bytes
        self._mark = own_mark()
        self._deployed: dict[str, str] = {}
        self._using: dict[str, None] = {}
        self._hashes: dict[tuple[Path, int, int], str] = {}
        self._warned = False

    def deploy_runtime(self, runtime: Runtime) -> DeployedRuntime:
        """Puts a runtime on the device; one round trip if it is there already."""
        files = tuple(
            StoredFile(file.name, file.path, file.size, entry_name(file.sha256, file.mode))
            for file in runtime.files
        )
        title = f"QNN {runtime.qnn_version}"
        name = f"qnn-{runtime.qnn_version}-{runtime.key[:_KEY_LENGTH]}"
        (root,) = self.deploy_sets([FileSet(name, title, files)])
        folders = [f"{root}/{folder}" for folder in runtime.library_dirs]
        library_path = ":".join(folders)
        dsp_folders = () if runtime.target == "linux-x64" else _DSP_FOLDERS
        return DeployedRuntime(
            runtime=runtime,
            root=root,
            library_path=library_path,
            environment={
                "LD_LIBRARY_PATH": library_path,
                "ADSP_LIBRARY_PATH": ";".join((*folders, *dsp_folders)),
            },
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

        One round trip to look; if anything is missing, one stream with the large files and a
        second round trip with the small ones. No round trip for sets that this object has
        deployed before.
        """
        wanted = {one.name: one for one in sets if one.name not in self._deployed}
        if wanted:
            self._deployed.update(self._deploy(list(wanted.values())))
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

    def _deploy(self, sets: list[FileSet]) -> dict[str, str]:
        """Makes the sets; {name: folder in `sets`}."""
        size = sum(file.size for one in sets for file in one.files)
        deadline = Deadline(_BASE_TIMEOUT_S + size / _SLOWEST_BYTES_PER_S)
        self._using.update(dict.fromkeys(names_used(sets)))
        seen: dict[str, str] = {}
        for attempt in range(_ATTEMPTS):
            view = self._look(sets, deadline)
            found = {one.name: view.found_set(one) for one in sets}
            if all(found.values()):
                return {name: folder for name, folder in found.items() if folder}
            absent = [one for one in sets if not found[one.name]]
            end = secrets.token_hex(4)
            try:
                damaged = self._complete(absent, view, end, deadline)
            except DeviceRefused:
                self._store.discard(self._own(end))
                raise
            except DeviceError as error:
                if type(error) is not DeviceError or attempt:
                    raise
                self._notify(f"{error}; once more")
                continue
            if not damaged:
                made = {one.name: f"{one.name}.{end}" for one in absent}
                return {name: folder or made[name] for name, folder in found.items()}
            self._judge(absent, damaged, seen)
            seen |= damaged
        raise DeviceRefused(
            f"{_titles(sets)}: the store does not keep what is put into it",
            serial=self._device.serial,
        )

    def _look(self, sets: list[FileSet], deadline: Deadline) -> StoreView:
        view = self._store.look(sets, self._mark, self._using, deadline)
        if not view.hashing and not self._warned:
            self._warned = True
            self._notify(f"{self._device.serial} has no sha256sum: files are checked by size only")
        files = {f.entry: f for one in sets if not view.found_set(one) for f in one.files}
        doubtful = [
            name
            for entry, file in files.items()
            if not view.found_entry(entry, file.size)
            and (name := view.unchecked_entry(entry, file.size))
        ]
        if not doubtful:
            return view
        self._notify(f"{self._device.serial} was rebooted: hashing {len(doubtful)} files there")
        self._store.check(doubtful, view.stored_at_touch, deadline)
        return self._store.look(sets, self._mark, self._using, deadline)

    def _complete(
        self, absent: list[FileSet], view: StoreView, end: str, deadline: Deadline
    ) -> dict[str, str]:
        """Pushes what is missing and makes the sets; {entry: hash} of what arrived damaged."""
        files = {file.entry: file for one in absent for file in one.files}
        places = {e: view.found_entry(e, f.size) or f"{e}.{end}" for e, f in files.items()}
        missing = {e: f for e, f in files.items() if places[e] == f"{e}.{end}"}
        adopted = {e: a for e, f in missing.items() if (a := self._left_behind(view, e, f.size))}
        places |= {entry: found.name for entry, found in adopted.items()}
        dead = sorted(mark for mark in view.marks if is_dead(mark))
        parcel = make_parcel(
            absent,
            places,
            missing,
            adopted,
            Removal(
                unlist=[name for one in absent for name in view.instances(one)],
                drop=sorted({found.folder for found in view.incoming if is_dead(found.mark)}),
                unmark=dead,
            ),
            end=end,
            links=view.links,
            pack=view.tar,
        )
        pushed = sum(file.size for entry, file in missing.items() if entry not in adopted)
        what = _titles(absent)
        if pushed:
            keep = {found.folder for found in adopted.values()}
            self._make_room(what, pushed, view, keep, dead, deadline)
            self._notify(f"pushing {what} to {self._device.serial} ({pushed / 1e6:.1f} MB)")
        self._push(parcel, what, pushed, end, deadline, packed=view.tar)
        packed = _archive(parcel) if view.tar else None
        placed = self._store.place(self._own(end), view.stored_at_touch, packed, deadline, what)
        # what vanished from the store meanwhile is pushed by the next attempt
        return dict(placed.damaged) | dict.fromkeys(placed.absent, "")

    def _left_behind(self, view: StoreView, entry: str, size: int) -> Incoming | None:
        """A file that a push which came to nothing has brought whole."""
        for found in view.incoming:
            if found.entry != entry or found.size != size or size <= SMALL_BYTES:
                continue
            abandoned = (
                found.mark == self._mark
                or found.mark not in view.marks
                or is_dead(found.mark)
                or (found.idle_s or 0) > _IDLE_S
            )
            if abandoned:
                return found
        return None

    def _make_room(
        self,
        what: str,
        size: int,
        view: StoreView,
        keep_incoming: set[str],
        dead: list[str],
        deadline: Deadline,
    ) -> None:
        free = view.free_bytes
        total = view.store_bytes + sum(found.size for found in view.incoming)
        cap = self._cap_bytes
        if cap is None and free is not None:
            cap = int((total + free) * _CAP_FRACTION)
        over = max(
            0 if cap is None else total + size - cap,
            0 if free is None else size + _SPARE_BYTES - free,
        )
        if over > 0 and total:
            inventory = self._store.inventory(deadline)
            plan = plan_eviction(inventory, over, keep_incoming=keep_incoming)
            if plan.sets or plan.entries or plan.drop:
                self._notify(f"removing {plan.size / 1e6:.1f} MB unused on {self._device.serial}")
                self._store.evict(plan, dead, deadline)
                free = None if free is None else self._store.inventory(deadline).free_bytes
        if free is not None and free < size:
            raise DeviceRefused(
                f"No space left on device: {what} needs {size} bytes, {free} bytes are free",
                serial=self._device.serial,
            )

    def _push(
        self, parcel: Parcel, what: str, size: int, end: str, deadline: Deadline, *, packed: bool
    ) -> None:
        folder = f"{self._workdir}/store/.incoming/{self._own(end)}"
        items = [PushItem(file.source, f"{folder}/{name}") for name, file in parcel.alone.items()]
        if not packed:
            items += [PushItem(note, f"{folder}/{name}") for name, note in parcel.notes.items()]
        if not items:
            return
        try:
            self._device.push(items, timeout_s=deadline.remaining())
        except DeviceRefused as error:
            raise DeviceRefused(
                f"{error.problem}: {what} needs {size} bytes, {self._free()} bytes are free",
                serial=error.serial,
                command=error.command,
            ) from error

    def _free(self) -> str:
        try:
            view = self._store.look([], self._mark, self._using, Deadline(_BASE_TIMEOUT_S))
        except InfraError:
            return "an unknown number of"
        return "an unknown number of" if view.free_bytes is None else str(view.free_bytes)

    def _judge(self, sets: list[FileSet], damaged: dict[str, str], seen: dict[str, str]) -> None:
        """Once is bad luck; the second time it is an error."""
        for entry, found in damaged.items():
            if entry in seen and found:
                named = (file.name for one in sets for file in one.files if file.entry == entry)
                raise DeviceRefused(
                    f"{_titles(sets)}: {next(named, 'a file')} ({entry}) arrived damaged twice: "
                    f"its sha256 is {found}",
                    serial=self._device.serial,
                )
        self._notify(f"{len(damaged)} files arrived damaged on {self._device.serial}; once more")

    def _own(self, end: str) -> str:
        return f"{self._mark}.{end}"

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


def _titles(sets: Sequence[FileSet]) -> str:
    titles = list(dict.fromkeys(one.title for one in sets))
    return ", ".join(titles[:4]) + (f" and {len(titles) - 4} more" if len(titles) > 4 else "")


def _archive(parcel: Parcel) -> bytes:
    try:
        return archive(parcel)
    except OSError as error:
        raise InfraError(f"cannot read {error.filename}: {error.strerror or error}") from error
