"""Brings sets of files into the store of a device: looks, makes room, pushes, checks."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Sequence

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice
from harness.errors import DeviceError, DeviceRefused, InfraError
from harness.runtimes.device_store import FileSet, Incoming, StoreView, names_used
from harness.runtimes.eviction import Eviction, plan_eviction
from harness.runtimes.notices import Say
from harness.runtimes.parcel import SMALL_BYTES, Removal, archive, make_parcel
from harness.runtimes.sending import Sender
from harness.runtimes.store_client import StoreClient
from harness.runtimes.use_marks import is_dead

_ATTEMPTS = 3
_CAP_FRACTION = 0.5
_SPARE_BYTES = 16 << 20
_IDLE_S = 600
_ASK_S = 15.0


class Delivery:
    """Delivers to one device below `workdir`, under one mark; see `Deployer`."""

    def __init__(
        self,
        device: AdbDevice,
        workdir: str,
        mark: str,
        *,
        notify: Say,
        cap_bytes: int | None,
    ) -> None:
        self._serial = device.serial
        self._store = StoreClient(device, workdir)
        self._sender = Sender(device, self._store)
        self._mark = mark
        self._notify = notify
        self._cap_bytes = cap_bytes
        self._warned = False

    def deliver(
        self, sets: list[FileSet], in_use: Sequence[str], deadline: Deadline
    ) -> dict[str, str]:
        """Makes the sets; {name: folder in `sets`}. `in_use` is what the mark names before."""
        using = [*in_use, *names_used(sets)]
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
            except DeviceRefused:
                self._take_back(absent, end, in_use)
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
            f"{_titles(sets)}: the store does not keep what is put into it", serial=self._serial
        )

    def _take_back(self, sets: list[FileSet], end: str, in_use: Sequence[str]) -> None:
        """Removes what a refused delivery has brought, but for what others began to use."""
        self._store.discard(self._own(end))
        brought = {f"{file.entry}.{end}": file.size for one in sets for file in one.files}
        with contextlib.suppress(InfraError):
            deadline = Deadline(_ASK_S)
            self._store.look([], self._mark, in_use, deadline)
            self._store.evict(Eviction((), tuple(brought), (), sum(brought.values())), (), deadline)

    def _look(self, sets: list[FileSet], using: Iterable[str], deadline: Deadline) -> StoreView:
        view = self._store.look(sets, self._mark, using, deadline)
        if not view.hashing and not self._warned:
            self._warned = True
            self._notify(f"{self._serial} has no sha256sum: files are checked by size only")
        files = {f.entry: f for one in sets if not view.found_set(one) for f in one.files}
        doubtful = [
            name
            for entry, file in files.items()
            if not view.found_entry(entry, file.size)
            and (name := view.unchecked_entry(entry, file.size))
        ]
        if not doubtful:
            return view
        self._notify(f"{self._serial} was rebooted: hashing {len(doubtful)} files there")
        self._store.check(doubtful, view.stored_at_touch, deadline)
        return self._store.look(sets, self._mark, using, deadline)

    def _complete(
        self, absent: list[FileSet], view: StoreView, end: str, deadline: Deadline
    ) -> dict[str, str]:
        """Pushes what is missing and makes the sets; {entry: hash} of what arrived damaged."""
        files = {file.entry: file for one in absent for file in one.files}
        places = {e: view.found_entry(e, f.size) or f"{e}.{end}" for e, f in files.items()}
        missing = {e: f for e, f in files.items() if places[e] == f"{e}.{end}"}
        adopted = {e: a for e, f in missing.items() if (a := self._left_behind(view, e, f.size))}
        places |= {entry: found.file for entry, found in adopted.items()}
        dead = sorted(mark for mark in view.marks if is_dead(mark))
        parcel = make_parcel(
            absent,
            places,
            missing,
            adopted,
            Removal(
                unlist=[name for one in absent for name in view.instances(one)],
                drop=sorted(
                    folder for folder in view.incoming_folders if is_dead(folder.rpartition(".")[0])
                ),
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
            self._notify(f"pushing {what} to {self._serial} ({pushed / 1e6:.1f} MB)")
        try:
            packed = archive(parcel) if view.tar else None
        except OSError as error:
            raise InfraError(f"cannot read {error.filename}: {error.strerror or error}") from error
        own, touch = self._own(end), view.stored_at_touch
        try:
            placed = self._sender.send(own, touch, parcel, packed, deadline, what)
        except DeviceRefused as error:
            if not (error.command or "").startswith("push "):
                raise
            raise DeviceRefused(
                f"{error.problem}: {what} needs {pushed} bytes, {self._free()} bytes are free",
                serial=error.serial,
                command=error.command,
            ) from error
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
                self._notify(f"removing {plan.size / 1e6:.1f} MB unused on {self._serial}")
                self._store.evict(plan, dead, deadline)
                free = None if free is None else self._store.inventory(deadline).free_bytes
        if free is not None and free < size:
            raise DeviceRefused(
                f"No space left on device: {what} needs {size} bytes, {free} bytes are free",
                serial=self._serial,
            )

    def _free(self) -> str:
        try:
            free = self._store.inventory(Deadline(_ASK_S)).free_bytes
        except InfraError:
            free = None
        return "an unknown number of" if free is None else str(free)

    def _judge(self, sets: list[FileSet], damaged: dict[str, str], seen: dict[str, str]) -> None:
        """Once is bad luck; the second time it is an error."""
        for entry, found in damaged.items():
            if entry in seen and found:
                named = (file.name for one in sets for file in one.files if file.entry == entry)
                raise DeviceRefused(
                    f"{_titles(sets)}: {next(named, 'a file')} ({entry}) arrived damaged twice: "
                    f"its sha256 is {found}",
                    serial=self._serial,
                )
        self._notify(f"{len(damaged)} files arrived damaged on {self._serial}; once more")

    def _own(self, end: str) -> str:
        return f"{self._mark}.{end}"


def _titles(sets: Sequence[FileSet]) -> str:
    titles = list(dict.fromkeys(one.title for one in sets))
    return ", ".join(titles[:4]) + (f" and {len(titles) - 4} more" if len(titles) > 4 else "")
