"""Deployment of sets of files to a device: only missing files are sent, and checked by sha256.

Small files are sent as one tar on the stdin of the installing script: a stream for each would cost
more than its content. Large ones are sent by adb's own file protocol.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import tarfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import (
    ConfigError,
    DeviceError,
    DeviceFull,
    DeviceRefused,
    InfraError,
    InternalError,
)
from harness.core.files import LocalFile, content_key, disk_errors, open_regular, sha256_of
from harness.core.notices import progress_reporter
from harness.core.outgoing_text import counted, first_names
from harness.core.verified_folder import valid_name
from harness.deploy.layout import (
    FileSet,
    LinkKind,
    StoreView,
    base,
    claims_pattern,
    entry_name,
    is_dead,
    names_used,
    new_claim,
)
from harness.deploy.store_client import Eviction, StoreClient, plan_eviction
from harness.transport.device import Transport
from harness.transport.files import PushItem

SMALL_BYTES: Final = 64 << 10
_MOST_PACKED_BYTES = 16 << 20


@dataclass(frozen=True)
class PushPlan:
    """A prepared deployment: `packed` and `alone` are files by their name in the store.

    `notes` are small files for the script, by their name in the deployment's folder of .incoming.
    """

    packed: Mapping[str, LocalFile]
    alone: Mapping[str, LocalFile]
    notes: Mapping[str, bytes]

    def archive(self) -> bytes:
        """Return the tar of the packed files and the notes. Raises OSError for a local file."""
        parts: list[bytes] = []
        for name, file in self.packed.items():
            with open_regular(file.path, file.size) as stream:
                content = stream.read(file.size)
            parts += _tar_member(f"ready/{name}", stored_mode(name), content=content)
        for name, content in self.notes.items():
            parts += _tar_member(name, 0o644, content=content)
        return b"".join((*parts, _END_OF_TAR))


def plan_push(
    sets: Sequence[FileSet],
    stored: Mapping[str, str],
    missing: Mapping[str, LocalFile],
    orders: Iterable[str],
    *,
    end: str,
    links: LinkKind,
) -> PushPlan:
    """Divide the missing files, and write the instructions for the script (pure).

    `stored` maps each entry of the sets to its name in the store, `end` is the random end of the
    new sets' names. `orders` are the removals once the sets are complete: `unlist SET`,
    `drop INCOMING`, `unclaim CLAIM`.
    """
    packed: dict[str, LocalFile] = {}
    alone: dict[str, LocalFile] = {}
    room = _MOST_PACKED_BYTES
    for entry, file in missing.items():
        if file.size <= min(room, SMALL_BYTES):
            room -= file.size
            packed[stored[entry]] = file
        else:
            alone[stored[entry]] = file
    links_made = [
        (stored[entry_name(file)], f"sets/{file_set.name}.{end}/{file.name}")
        for file_set in sets
        for file in file_set.files
    ]
    notes = {
        ".control": _lines(orders),
        ".links": _lines(f"{name} {path}" for name, path in links_made),
    }
    if links != "copy":
        # links have the mode of their target, since some tars (toybox) apply it to that
        parts: list[bytes] = []
        for name, path in links_made:
            up = "" if links == "hard" else "../" * path.count("/")
            kind = tarfile.LNKTYPE if links == "hard" else tarfile.SYMTYPE
            parts += _tar_member(path, stored_mode(name), kind=kind, target=f"{up}store/{name}")
        notes[".links.tar"] = b"".join((*parts, _END_OF_TAR))
    for file_set in sets:
        notes[f"listed/{file_set.name}.{end}"] = _lines(stored[entry] for entry in file_set.entries)
    return PushPlan(packed, alone, notes)


def stored_mode(name: str) -> int:
    """Return the permission bits of a file in the store, by its name (pure)."""
    return 0o555 if "-x." in name else 0o444


_END_OF_TAR: Final = bytes(2 * tarfile.BLOCKSIZE)


def _tar_member(
    name: str, mode: int, *, content: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = ""
) -> tuple[bytes, bytes, bytes]:
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.type, header.linkname = len(content), mode, kind, target
    return header.tobuf(tarfile.GNU_FORMAT), content, bytes(-len(content) % tarfile.BLOCKSIZE)


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


_log = logging.getLogger(__name__)

_ATTEMPTS = 3
_CAP_FRACTION = 0.5
_SPARE_BYTES = 16 << 20
_ASK_S = 15.0
_BASE_TIMEOUT_S = 60.0
_SLOWEST_BYTES_PER_S = 1_500_000
KEY_LENGTH: Final = 20
"""The digits of the content's key in the name of a set."""


@dataclass(frozen=True)
class Push:
    """One push to a device: its title, size, start and duration; `problem` is why it failed."""

    title: str
    size: int
    started: datetime
    duration_s: float
    problem: str | None


OnPush = Callable[[Push], None]


class Deployer:
    """Deploys to one device below `workdir`, an absolute path there.

    Sets that this object has deployed are not checked again: the device is asked once per set.
    Files are read-only on the device, executable or not. Every method raises DeviceError:
    DeviceRefused if the device has no space or denies permission; nothing incomplete stays then.
    What stays after any other error the next deployment removes.

    Deployed files are claimed: nobody removes them before `release`, unless nothing was deployed
    for a day; each deployment refreshes the claim.

    `cap_bytes` limits the size of the store: files used longest ago are removed first, files in use
    never; if those alone exceed it, a warning is logged. By default it is half of the store and the
    free space together.

    `claim` is the name of the claim. An object with the claim of an earlier one replaces it; two
    that deploy to one device at the same time need different claims.

    `on_push` is called after each push.
    """

    def __init__(
        self,
        device: Transport,
        workdir: str,
        *,
        cap_bytes: int | None = None,
        claim: str | None = None,
        on_push: OnPush = lambda push: None,
    ) -> None:
        if not workdir.startswith("/") or any(character in workdir for character in ":;\n\0"):
            problem = f"{workdir!r} must be an absolute path without ':', ';' or line breaks"
            raise ConfigError(problem, field="workdir")
        self._device = device
        self._serial = device.serial
        self._workdir = workdir.rstrip("/")
        self._store = StoreClient(device, self._workdir)
        self._claim = claim or new_claim()
        self._cap_bytes = cap_bytes
        self._on_push = on_push
        self._warned = False
        self._warned_over = False
        self._deployed: dict[str, str] = {}
        self._using: dict[str, None] = {}
        self._hashes: dict[tuple[Path, int, int], str] = {}

    def deploy_files(
        self, name: str, files: Mapping[str, Path], programs: Collection[str] = ()
    ) -> str:
        """Put files into a folder of their own on the device and return its path.

        `files` are local ones by their name in that folder (slashes); those named in `programs` are
        executable there. The same files with the same name get the same folder. `name` is for
        people.
        """
        return self.deploy_sets([self.file_set(name, files, programs)])[0]

    def file_set(
        self, name: str, files: Mapping[str, Path], programs: Collection[str] = ()
    ) -> FileSet:
        """Return the set that `deploy_files` would make, to deploy several together."""
        local_files = []
        for file_name, path in files.items():
            if not valid_name(file_name):
                raise InternalError(f"a file on a device cannot be called {file_name[:120]!r}")
            size, sha256 = self._facts(path)
            mode = 0o755 if file_name in programs else 0o644
            local_files.append(LocalFile(path, file_name, size, sha256, mode))
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "files"
        return FileSet(f"{short}-{content_key(local_files)[:KEY_LENGTH]}", name, tuple(local_files))

    def deploy_sets(self, sets: Sequence[FileSet]) -> list[str]:
        """Put several sets on the device together; return their folders, in order.

        One round trip to check; if anything is missing, one stream with the large files, and a
        second round trip with the small ones. No round trip for sets that this object has deployed
        before.
        """
        new_sets = {
            file_set.name: file_set for file_set in sets if file_set.name not in self._deployed
        }
        if new_sets:
            size = sum(file.size for file_set in new_sets.values() for file in file_set.files)
            deadline = Deadline(_BASE_TIMEOUT_S + size / _SLOWEST_BYTES_PER_S)
            folders = self._deliver(list(new_sets.values()), deadline)
            self._using.update(dict.fromkeys(names_used(new_sets.values())))
            self._deployed.update(folders)
        return [f"{self._workdir}/sets/{self._deployed[file_set.name]}" for file_set in sets]

    def forget(self) -> None:
        """Make the next deployment check the device again (after a reboot, say)."""
        self._deployed.clear()

    def release(self, *, of_run: bool = False) -> None:
        """Give up the claim, and forget what was deployed; never raises DeviceError.

        `of_run`: also the claims of the other processes of this run.
        """
        if self._using or of_run:
            self._store.release(self._claim, claims_pattern(self._claim) if of_run else "")
        self._using.clear()
        self._deployed.clear()

    def _facts(self, path: Path) -> tuple[int, str]:
        """Return the size and sha256 of a local file, hashed once as long as it does not change."""
        with disk_errors(f"cannot read {path}"):
            status = path.stat()
            key = (path, status.st_size, status.st_mtime_ns)
            if key not in self._hashes:
                self._hashes[key] = sha256_of(path)
        return status.st_size, self._hashes[key]

    def _deliver(self, sets: list[FileSet], deadline: Deadline) -> dict[str, str]:
        """Make the sets; return {name: folder in `sets`}."""
        using = [*self._using, *names_used(sets)]
        damaged_before: set[str] = set()
        for attempt in range(_ATTEMPTS):
            view = self._look(sets, using, deadline)
            folders = {file_set.name: view.find_set(file_set) for file_set in sets}
            if all(folders.values()):
                return {name: folder for name, folder in folders.items() if folder}
            absent = [file_set for file_set in sets if not folders[file_set.name]]
            end = secrets.token_hex(4)
            try:
                damaged = self._complete(absent, view, end, deadline)
            except DeviceError as error:
                if isinstance(error, DeviceRefused):
                    self._remove_delivery(absent, end)
                # files damaged in transit may be refused, too
                if type(error) not in (DeviceError, DeviceRefused) or attempt:
                    raise
                self._store.discard(f"{self._claim}.{end}")
                _log.info(f"{error}; trying again")
                continue
            if not damaged:
                new_folders = {file_set.name: f"{file_set.name}.{end}" for file_set in absent}
                return {name: folder or new_folders[name] for name, folder in folders.items()}
            files = {entry: file for file_set in absent for entry, file in file_set.entries.items()}
            for entry in damaged_before & {entry for entry, sha256 in damaged.items() if sha256}:
                # the device may name any entry
                name = files[entry].name if entry in files else "a file"
                raise DeviceRefused(
                    f"{_titles(sets)}: {name} ({entry}) arrived damaged twice: its sha256 is "
                    f"{damaged[entry]}",
                    serial=self._serial,
                )
            number = counted(len(damaged), "file")
            _log.info(f"{number} arrived damaged on {self._serial}; pushing again")
            damaged_before |= damaged.keys()
        raise DeviceRefused(
            f"{_titles(sets)}: files disappeared from the device's store after the push",
            serial=self._serial,
        )

    def _remove_delivery(self, sets: list[FileSet], end: str) -> None:
        """Remove the files of a refused delivery, except those that others use by now."""
        self._store.discard(f"{self._claim}.{end}")
        brought = {f"{e}.{end}": f.size for file_set in sets for e, f in file_set.entries.items()}
        with contextlib.suppress(InfraError):
            deadline = Deadline(_ASK_S)
            self._store.look([], self._claim, self._using, deadline)
            self._store.evict(Eviction((), tuple(brought), (), sum(brought.values())), (), deadline)

    def _look(self, sets: list[FileSet], using: Iterable[str], deadline: Deadline) -> StoreView:
        view = self._store.look(sets, self._claim, using, deadline)
        if not view.hashing and not self._warned:
            self._warned = True
            _log.info(f"{self._serial} has no sha256sum; files are checked by size only")
        absent = [file_set for file_set in sets if not view.find_set(file_set)]
        files = {entry: file for file_set in absent for entry, file in file_set.entries.items()}
        doubtful = [
            name
            for entry, file in files.items()
            if not view.find_entry(entry, file.size)
            and (name := view.unchecked_entry(entry, file.size))
        ]
        if not doubtful:
            return view
        _log.info(f"{self._serial} was rebooted; hashing {counted(len(doubtful), 'file')} there")
        self._store.check(doubtful, view.stored_at_touch, deadline)
        return self._store.look(sets, self._claim, using, deadline)

    def _complete(
        self, absent: list[FileSet], view: StoreView, end: str, deadline: Deadline
    ) -> dict[str, str]:
        """Push the missing files and make the sets; return {entry: hash} of damaged files."""
        files = {entry: file for file_set in absent for entry, file in file_set.entries.items()}
        stored = {e: view.find_entry(e, f.size) or f"{e}.{end}" for e, f in files.items()}
        missing = {e: f for e, f in files.items() if stored[e] == f"{e}.{end}"}
        dead = sorted(claim for claim in view.claims if is_dead(claim))
        abandoned = (name for name in view.incoming if is_dead(base(name)))
        orders = [
            *(f"unlist {name}" for file_set in absent for name in view.instances(file_set)),
            *(f"drop {name}" for name in sorted(abandoned)),
            *(f"unclaim {name}" for name in dead),
        ]
        plan = plan_push(absent, stored, missing, orders, end=end, links=view.links)
        pushed = sum(file.size for file in missing.values())
        title = _titles(absent)
        if pushed:
            self._make_room(title, pushed, view, dead, deadline)
            _log.info(f"pushing {title} to {self._serial} ({pushed / 1e6:.1f} MB)")
        folder, touch = f"{self._claim}.{end}", view.stored_at_touch
        try:
            # files removed from the store meanwhile are pushed by the next attempt
            with self._report_push(title, pushed):
                return self._send(folder, touch, plan, deadline, title)
        except DeviceRefused as error:
            if not (error.command or "").startswith("push "):
                raise
            free = None
            with contextlib.suppress(InfraError):
                free = self._store.inventory(Deadline(_ASK_S)).free_bytes
            number = "an unknown number of" if free is None else free
            raise DeviceFull.or_refused(
                f"{error.problem}: {title} needs {pushed} bytes, {number} bytes are free",
                serial=error.serial,
                command=error.command,
            ) from error

    @contextlib.contextmanager
    def _report_push(self, title: str, size: int) -> Iterator[None]:
        started, start, problem = datetime.now(UTC), time.monotonic(), None
        try:
            yield
        except DeviceError as error:
            problem = error.problem
            raise
        finally:
            if size:
                self._on_push(
                    Push(title, size, started, round(time.monotonic() - start, 3), problem)
                )

    def _send(
        self, folder: str, touch: str, plan: PushPlan, deadline: Deadline, title: str
    ) -> dict[str, str]:
        """Push the files of a plan into `folder` of .incoming, and make its sets.

        Small files are packed for the script. Raises DeviceError.
        """
        try:
            packed = plan.archive()
        except OSError as error:
            raise InfraError(f"cannot read {error.filename}: {error.strerror or error}") from error
        if plan.alone:
            self._push(plan.alone, self._store.incoming(folder), deadline)
        return self._store.install(folder, touch, packed, deadline, title)

    def _push(self, files: Mapping[str, LocalFile], folder: str, deadline: Deadline) -> None:
        total = sum(file.size for file in files.values())
        items = [
            PushItem(file.path, f"{folder}/{name}", stored_mode(name), size=file.size)
            for name, file in files.items()
        ]
        with progress_reporter(self._serial) as report:
            self._device.push(
                items,
                timeout_s=deadline.remaining(),
                progress=lambda size: report("pushing", size, total, "MB"),
            )

    def _make_room(
        self, title: str, size: int, view: StoreView, dead: list[str], deadline: Deadline
    ) -> None:
        free = view.free_bytes
        total = view.store_bytes + sum(view.incoming.values())
        cap = self._cap_bytes
        if cap is None and free is not None:
            cap = int((total + free) * _CAP_FRACTION)
        excess = max(
            0 if cap is None else total + size - cap,
            0 if free is None else size + _SPARE_BYTES - free,
        )
        if excess > 0 and total:
            plan = plan_eviction(self._store.inventory(deadline), excess)
            if plan.sets or plan.entries or plan.drop:
                _log.info(f"removing {plan.size / 1e6:.1f} MB unused on {self._serial}")
                self._store.evict(plan, dead, deadline)
                total -= plan.size
                free = None if free is None else self._store.inventory(deadline).free_bytes
        needed, limit = total + size, self._cap_bytes
        if limit is not None and needed > limit and not self._warned_over:
            self._warned_over = True
            _log.warning(
                f"files in use on {self._serial} take {needed / 1e6:.1f} MB, more than its "
                f"store_limit_mb ({limit / 1e6:g}); files in use are not removed"
            )
        if free is not None and free < size:
            raise DeviceFull(
                f"No space left on device: {title} needs {size} bytes, {free} bytes are free",
                serial=self._serial,
            )


def _titles(sets: Sequence[FileSet]) -> str:
    return first_names(dict.fromkeys(file_set.title for file_set in sets))
