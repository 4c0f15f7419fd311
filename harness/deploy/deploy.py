"""Puts sets of files on a device: only what is not there yet travels, checked by sha256.

Small files go as one tar on the stdin of the script that takes them in: a stream for each costs
more than its content. Large ones go by adb's own file protocol.
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
from harness.core.local_file import LocalFile, content_key
from harness.core.notices import working
from harness.core.outgoing_text import counted
from harness.core.verified_folder import valid_name
from harness.core.whole_file import disk_errors, open_regular, sha256_of
from harness.deploy.client import Eviction, StoreClient, plan_eviction
from harness.deploy.layout import (
    FileSet,
    Incoming,
    LinkKind,
    StoreView,
    base,
    claims_of,
    entry_name,
    is_dead,
    names_used,
    own_claim,
)
from harness.transport.device import Transport
from harness.transport.files import PushItem

SMALL_BYTES: Final = 64 << 10
_MOST_PACKED_BYTES = 16 << 20


@dataclass(frozen=True)
class PushPlan:
    """A deployment made ready: `packed` and `alone` are files by their name in the store.

    `notes` are small files for the script, by their name in our folder of .incoming.
    """

    packed: Mapping[str, LocalFile]
    alone: Mapping[str, LocalFile]
    notes: Mapping[str, bytes]

    def archive(self) -> bytes:
        """The tar of what is packed, and of the notes. Raises OSError for a local file."""
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
    adopted: Mapping[str, Incoming],
    orders: Iterable[str],
    *,
    end: str,
    links: LinkKind,
) -> PushPlan:
    """Divides what is missing, and writes down what the script has to do (pure).

    `stored` maps each entry of the sets to its name in the store, `end` is the random end of the
    new sets' names, `adopted` what others left in .incoming. `orders` is what to remove once the
    sets are there: `unlist SET`, `drop INCOMING`, `unclaim CLAIM`.
    """
    packed: dict[str, LocalFile] = {}
    alone: dict[str, LocalFile] = {}
    room = _MOST_PACKED_BYTES
    for entry, file in missing.items():
        if entry in adopted:
            continue
        if file.size <= min(room, SMALL_BYTES):
            room -= file.size
            packed[stored[entry]] = file
        else:
            alone[stored[entry]] = file
    made = [
        (stored[entry_name(file)], f"sets/{one.name}.{end}/{file.name}")
        for one in sets
        for file in one.files
    ]
    adopt = (f"adopt {found.folder}/{found.name}" for found in adopted.values())
    notes = {
        ".control": _lines((*adopt, *orders)),
        ".links": _lines(f"{name} {path}" for name, path in made),
    }
    if links != "copy":
        notes[".links.tar"] = _link_archive(made, links)
    for one in sets:
        notes[f"listed/{one.name}.{end}"] = _lines(stored[entry] for entry in one.entries)
    return PushPlan(packed, alone, notes)


def stored_mode(name: str) -> int:
    """The permission bits of a file in the store, by its name (pure)."""
    return 0o555 if "-x." in name else 0o444


def _link_archive(made: Iterable[tuple[str, str]], links: LinkKind) -> bytes:
    # Members have the mode of what they link to: some tars (toybox) give it to that.
    parts: list[bytes] = []
    for name, path in made:
        up = "" if links == "hard" else "../" * path.count("/")
        kind = tarfile.LNKTYPE if links == "hard" else tarfile.SYMTYPE
        parts += _tar_member(path, stored_mode(name), kind=kind, target=f"{up}store/{name}")
    return b"".join((*parts, _END_OF_TAR))


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
_IDLE_S = 600
_ASK_S = 15.0
_BASE_TIMEOUT_S = 60.0
_SLOWEST_BYTES_PER_S = 1_500_000
KEY_LENGTH: Final = 20
"""So many digits of its content's key stand in the name of a set."""


@dataclass(frozen=True)
class Push:
    """What was sent to a device, from when on and for how long; `problem` is why it failed."""

    what: str
    size: int
    started: datetime
    duration_s: float
    problem: str | None


TellPush = Callable[[Push], None]


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
        self._device = device
        self._serial = device.serial
        self._workdir = workdir.rstrip("/")
        self._store = StoreClient(device, self._workdir)
        self._claim = claim or own_claim()
        self._cap_bytes = cap_bytes
        self._tell = tell
        self._warned = False
        self._told_over = False
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
            made = self._deliver(list(wanted.values()), deadline)
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

    def _deliver(self, sets: list[FileSet], deadline: Deadline) -> dict[str, str]:
        """Makes the sets; {name: folder in `sets`}."""
        using = [*self._using, *names_used(sets)]
        seen: dict[str, str] = {}
        for attempt in range(_ATTEMPTS):
            view = self._look(sets, using, deadline)
            found = {one.name: view.found_set(one) for one in sets}
            if all(found.values()):
                return {name: folder for name, folder in found.items() if folder}
            absent = [one for one in sets if not found[one.name]]
            end = secrets.token_hex(4)
            try:
                damaged = self._complete(absent, view, end, deadline)
            except DeviceError as error:
                if isinstance(error, DeviceRefused):
                    self._take_back(absent, end)
                # what was damaged on its way may be refused, too
                if type(error) not in (DeviceError, DeviceRefused) or attempt:
                    raise
                _log.info(f"{error}; once more")
                continue
            if not damaged:
                made = {one.name: f"{one.name}.{end}" for one in absent}
                return {name: folder or made[name] for name, folder in found.items()}
            self._judge(absent, damaged, seen)
            seen |= damaged
        raise DeviceRefused(
            f"{_titles(sets)}: the store does not keep what is put into it", serial=self._serial
        )

    def _take_back(self, sets: list[FileSet], end: str) -> None:
        """Removes what a refused delivery has brought, but for what others began to use."""
        self._store.discard(f"{self._claim}.{end}")
        brought = {f"{e}.{end}": f.size for one in sets for e, f in one.entries.items()}
        with contextlib.suppress(InfraError):
            deadline = Deadline(_ASK_S)
            self._store.look([], self._claim, self._using, deadline)
            self._store.evict(Eviction((), tuple(brought), (), sum(brought.values())), (), deadline)

    def _look(self, sets: list[FileSet], using: Iterable[str], deadline: Deadline) -> StoreView:
        view = self._store.look(sets, self._claim, using, deadline)
        if not view.hashing and not self._warned:
            self._warned = True
            _log.info(f"{self._serial} has no sha256sum: files are checked by size only")
        absent = [one for one in sets if not view.found_set(one)]
        files = {entry: file for one in absent for entry, file in one.entries.items()}
        doubtful = [
            name
            for entry, file in files.items()
            if not view.found_entry(entry, file.size)
            and (name := view.unchecked_entry(entry, file.size))
        ]
        if not doubtful:
            return view
        _log.info(f"{self._serial} was rebooted: hashing {counted(len(doubtful), 'file')} there")
        self._store.check(doubtful, view.stored_at_touch, deadline)
        return self._store.look(sets, self._claim, using, deadline)

    def _complete(
        self, absent: list[FileSet], view: StoreView, end: str, deadline: Deadline
    ) -> dict[str, str]:
        """Pushes what is missing and makes the sets; {entry: hash} of what arrived damaged."""
        files = {entry: file for one in absent for entry, file in one.entries.items()}
        stored = {e: view.found_entry(e, f.size) or f"{e}.{end}" for e, f in files.items()}
        missing = {e: f for e, f in files.items() if stored[e] == f"{e}.{end}"}
        adopted = {e: a for e, f in missing.items() if (a := self._left_behind(view, e, f.size))}
        stored |= {entry: found.file for entry, found in adopted.items()}
        dead = sorted(claim for claim in view.claims if is_dead(claim))
        left = (name for name in view.incoming_folders if is_dead(base(name)))
        orders = [
            *(f"unlist {name}" for one in absent for name in view.instances(one)),
            *(f"drop {name}" for name in sorted(left)),
            *(f"unclaim {name}" for name in dead),
        ]
        plan = plan_push(absent, stored, missing, adopted, orders, end=end, links=view.links)
        pushed = sum(file.size for entry, file in missing.items() if entry not in adopted)
        what = _titles(absent)
        if pushed:
            keep = {found.folder for found in adopted.values()}
            self._make_room(what, pushed, view, keep, dead, deadline)
            _log.info(f"pushing {what} to {self._serial} ({pushed / 1e6:.1f} MB)")
        own, touch = f"{self._claim}.{end}", view.stored_at_touch
        try:
            # what vanished from the store meanwhile is pushed by the next attempt
            with self._told(what, pushed):
                return self._send(own, touch, plan, deadline, what)
        except DeviceRefused as error:
            if not (error.command or "").startswith("push "):
                raise
            raise DeviceFull.or_refused(
                f"{error.problem}: {what} needs {pushed} bytes, {self._free()} bytes are free",
                serial=error.serial,
                command=error.command,
            ) from error

    @contextlib.contextmanager
    def _told(self, what: str, size: int) -> Iterator[None]:
        """Tells of a push when it is over, however it ends."""
        started, began, problem = datetime.now(UTC), time.monotonic(), None
        try:
            yield
        except DeviceError as error:
            problem = error.problem
            raise
        finally:
            if size:
                self._tell(Push(what, size, started, round(time.monotonic() - began, 3), problem))

    def _send(
        self, own: str, touch: str, plan: PushPlan, deadline: Deadline, what: str
    ) -> dict[str, str]:
        """Pushes what a plan has into our folder `own` of .incoming, and makes its sets.

        Small files go packed to the script. Raises DeviceError.
        """
        try:
            packed = plan.archive()
        except OSError as error:
            raise InfraError(f"cannot read {error.filename}: {error.strerror or error}") from error
        if plan.alone:
            self._push(plan.alone, self._store.incoming(own), deadline)
        return self._store.install(own, touch, packed, deadline, what)

    def _push(self, files: Mapping[str, LocalFile], folder: str, deadline: Deadline) -> None:
        """Pushes files by their names in `folder`."""
        total = sum(file.size for file in files.values())
        items = [
            PushItem(file.path, f"{folder}/{name}", stored_mode(name), size=file.size)
            for name, file in files.items()
        ]
        with working(self._serial) as tell:
            self._device.push(
                items,
                timeout_s=deadline.remaining(),
                progress=lambda size: tell("pushing", size, total, "MB"),
            )

    def _left_behind(self, view: StoreView, entry: str, size: int) -> Incoming | None:
        """A file that a push which came to nothing has brought whole."""
        for found in view.incoming:
            if found.entry != entry or found.size != size or size <= SMALL_BYTES:
                continue
            abandoned = (
                found.claim == self._claim
                or found.claim not in view.claims
                or is_dead(found.claim)
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
            plan = plan_eviction(self._store.inventory(deadline), over, keep_incoming=keep_incoming)
            if plan.sets or plan.entries or plan.drop:
                _log.info(f"removing {plan.size / 1e6:.1f} MB unused on {self._serial}")
                self._store.evict(plan, dead, deadline)
                total -= plan.size
                free = None if free is None else self._store.inventory(deadline).free_bytes
        self._tell_if_over(total + size)
        if free is not None and free < size:
            raise DeviceFull(
                f"No space left on device: {what} needs {size} bytes, {free} bytes are free",
                serial=self._serial,
            )

    def _tell_if_over(self, needed: int) -> None:
        """Says once that what is in use together is more than the lab allows."""
        cap = self._cap_bytes
        if cap is None or needed <= cap or self._told_over:
            return
        self._told_over = True
        _log.warning(
            f"what is in use on {self._serial} takes {needed / 1e6:.1f} MB there, more than its "
            f"store_limit_mb ({cap / 1e6:g}): nothing in use is removed"
        )

    def _free(self) -> str:
        try:
            free = self._store.inventory(Deadline(_ASK_S)).free_bytes
        except InfraError:
            free = None
        return "an unknown number of" if free is None else str(free)

    def _judge(self, sets: list[FileSet], damaged: dict[str, str], seen: dict[str, str]) -> None:
        """Raises DeviceRefused for what arrived damaged twice; once is bad luck."""
        for entry, found in damaged.items():
            if entry in seen and found:
                named = (one.entries[entry].name for one in sets if entry in one.entries)
                raise DeviceRefused(
                    f"{_titles(sets)}: {next(named, 'a file')} ({entry}) arrived damaged twice: "
                    f"its sha256 is {found}",
                    serial=self._serial,
                )
        _log.info(f"{counted(len(damaged), 'file')} arrived damaged on {self._serial}; once more")


def _titles(sets: Sequence[FileSet]) -> str:
    titles = list(dict.fromkeys(one.title for one in sets))
    return ", ".join(titles[:4]) + (f" and {len(titles) - 4} more" if len(titles) > 4 else "")
