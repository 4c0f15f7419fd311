"""Puts runtimes and files on a device: only what is not there yet travels, checked by sha256."""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice, Completed, PushItem
from harness.errors import ConfigError, DeviceError, DeviceRefused, InfraError, InternalError
from harness.runtimes.catalog import Runtime, content_key
from harness.runtimes.device_store import (
    LOOK_SCRIPT,
    PLACE_SCRIPT,
    FileSet,
    StoreAnswerError,
    StoredFile,
    StoreView,
    check_place,
    entry_name,
    incoming_name,
    look_input,
    parse_look,
    place_arguments,
    place_input,
    valid_name,
)
from harness.runtimes.notices import Say, on_terminal
from harness.runtimes.sealed import sha256_of

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
_CLEANUP_S = 10.0
_MAX_OUTPUT_BYTES = 8 << 20
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
    where the device has no room or does not permit it; nothing half-made stays then.
    """

    def __init__(self, device: AdbDevice, workdir: str, *, notify: Say = on_terminal) -> None:
        if not workdir.startswith("/") or any(character in workdir for character in ":;\n\0"):
            raise ConfigError(f"{workdir!r} cannot be a device's work folder", field="workdir")
        self._device = device
        self._workdir = workdir.rstrip("/")
        self._notify = notify
        self._deployed: set[str] = set()
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

        One round trip to look; if anything is missing, one stream with just that and a second
        round trip. No round trip for sets that this object has deployed before.
        """
        wanted = {one.name: one for one in sets if one.name not in self._deployed}
        if wanted:
            self._deploy(list(wanted.values()))
            self._deployed.update(wanted)
        return [f"{self._workdir}/sets/{one.name}" for one in sets]

    def forget(self) -> None:
        """Makes the next deployment look at the device again (after a reboot, say)."""
        self._deployed.clear()

    def _deploy(self, sets: list[FileSet]) -> None:
        size = sum(file.size for one in sets for file in one.files)
        deadline = Deadline(_BASE_TIMEOUT_S + size / _SLOWEST_BYTES_PER_S)
        view = self._look(sets, deadline)
        absent = [one for one in sets if not view.has_set(one)]
        if not absent:
            return
        missing = {
            file.entry: file
            for one in absent
            for file in one.files
            if not view.has_entry(file.entry, file.size)
        }
        random = secrets.token_hex(8)
        try:
            self._push(absent, missing, view, random, deadline)
            self._place(absent, missing, random, deadline)
        except BaseException:
            self._remove_incoming(random)
            raise

    def _look(self, sets: list[FileSet], deadline: Deadline) -> StoreView:
        answer = self._run(LOOK_SCRIPT, [self._workdir], look_input(sets), deadline)
        try:
            view = parse_look(answer.stdout.decode("utf-8", "replace"))
        except StoreAnswerError as error:
            raise self._refused(str(error), answer) from error
        if not view.hashing and not self._warned:
            self._warned = True
            self._notify(f"{self._device.serial} has no sha256sum: files are checked by size only")
        return view

    def _push(
        self,
        absent: list[FileSet],
        missing: dict[str, StoredFile],
        view: StoreView,
        random: str,
        deadline: Deadline,
    ) -> None:
        if not missing:
            return
        what = _titles(absent)
        size = sum(file.size for file in missing.values())
        room = f"{what} needs {size} bytes, {{}} bytes are free"
        if view.free_bytes is not None and view.free_bytes < size:
            raise DeviceRefused(
                f"No space left on device: {room.format(view.free_bytes)}",
                serial=self._device.serial,
            )
        self._notify(f"pushing {what} to {self._device.serial} ({size / 1e6:.1f} MB)")
        items = [
            PushItem(file.source, f"{self._workdir}/{incoming_name(random, entry)}")
            for entry, file in missing.items()
        ]
        try:
            self._device.push(items, timeout_s=deadline.remaining())
        except DeviceRefused as error:
            free = self._free_bytes()
            told = room.format("an unknown number of" if free is None else free)
            raise DeviceRefused(
                f"{error.problem}: {told}", serial=error.serial, command=error.command
            ) from error

    def _place(
        self,
        absent: list[FileSet],
        missing: dict[str, StoredFile],
        random: str,
        deadline: Deadline,
    ) -> None:
        arrived = {entry: file.size for entry, file in missing.items()}
        answer = self._run(
            PLACE_SCRIPT,
            place_arguments(self._workdir, random),
            place_input(arrived, absent),
            deadline,
        )
        try:
            check_place(answer.stdout.decode("utf-8", "replace"))
        except StoreAnswerError as error:
            raise self._refused(f"{_titles(absent)}: {error}", answer) from error

    def _run(
        self, script: str, arguments: Iterable[str], stdin: bytes, deadline: Deadline
    ) -> Completed:
        quoted = " ".join(shlex.quote(argument) for argument in arguments)
        return self._device.shell(
            f"set -- {quoted}\n{script}",
            stdin=stdin,
            timeout_s=deadline.remaining(),
            max_output_bytes=_MAX_OUTPUT_BYTES,
        )

    def _refused(self, problem: str, answer: Completed) -> DeviceError:
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        detail = f" ({said[-1][:300]})" if said else ""
        return DeviceRefused(f"{problem}{detail}", serial=self._device.serial)

    def _free_bytes(self) -> int | None:
        with contextlib.suppress(InfraError, StoreAnswerError):
            answer = self._run(LOOK_SCRIPT, [self._workdir], b"", Deadline(_CLEANUP_S))
            return parse_look(answer.stdout.decode("utf-8", "replace")).free_bytes
        return None

    def _remove_incoming(self, random: str) -> None:
        incoming = shlex.quote(f"{self._workdir}/store/.incoming/{random}")
        unfinished = shlex.quote(f"{self._workdir}/sets/.new-{random}-")
        with contextlib.suppress(InfraError):
            self._device.shell(f"rm -rf {incoming}.* {unfinished}*", timeout_s=_CLEANUP_S)

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
