"""Runs the store's scripts on a device: look, install, check, evict, clean; one round trip each.

What is true of all:

Hosts that share a device run them at the same time, and any of them may end after any command.
What keeps them from harming each other is an order of steps, no lock (a lock's holder may be a
host that nobody can ask):

- Whoever wants something writes its name into a claim of its own first, and looks then.
- Whoever removes something makes it invisible first, reads all claims then, and removes it only if
  none names it. So one of the two always sees the other.
- Nothing is ever put under a name that was used before (each has a random end), so a remover that
  was delayed cannot hit what came after it.
- A set counts when it is listed, and that is one rename, the last step of making it.

Ages of claims are counted in the device's uptime: its clock may jump. A claim from before a reboot
is void, since nothing runs any more.

Each script is prelude.sh and its own file, sent as they are; they run in dash, mksh, bash and
busybox. What is meant for us in their output stands behind `transport.questions.PREFIX`, one thing
a line, and ends with `done`.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Literal, TypeVar

from harness.core.deadline import Deadline
from harness.core.errors import NO_ROOM, DeviceError, DeviceFull, InfraError
from harness.deploy.layout import (
    CLAIM_LASTS_S,
    CONDEMNED_TOUCH,
    ENTRY_FILE,
    FileSet,
    StoreAnswerError,
    StoreView,
    answer,
    base,
    is_dead,
    look_input,
    parse_install,
    parse_listed,
    parse_look,
    plain,
)
from harness.transport.device import Transport
from harness.transport.questions import free_storage
from harness.transport.shell import Completed

ScriptName = Literal["look", "install", "check", "inventory", "evict", "remove_all"]


@cache
def script(name: ScriptName) -> str:
    """The text of a script, as a device gets it."""
    folder = files("harness.deploy").joinpath("device")
    return "".join(folder.joinpath(f"{one}.sh").read_text("ascii") for one in ("prelude", name))


@dataclass
class Inventory:
    """All that a device holds for us; names as they are in its folders.

    `sets`: {set: (last used, entries)} of those listed; `folders`: all folders of sets, listed or
    not; `used`: what live claims name, without the random ends; `incoming`: {folder: bytes}.
    """

    entries: dict[str, int] = field(default_factory=dict)
    sets: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    incoming: dict[str, int] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    free_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        return sum(self.entries.values()) + sum(self.incoming.values())


@dataclass(frozen=True)
class Eviction:
    """What is to be removed; `size` is that of the entries and incoming files, in bytes."""

    sets: tuple[str, ...]
    entries: tuple[str, ...]
    drop: tuple[str, ...]
    size: int

    def text(self, unclaim: Iterable[str] = ()) -> bytes:
        """stdin of evict.sh."""
        orders = {"unclaim": unclaim, "set": self.sets, "entry": self.entries, "drop": self.drop}
        lines = (f"{verb} {name}\n" for verb, names in orders.items() for name in names)
        return "".join(lines).encode()


def plan_eviction(
    inventory: Inventory, need_bytes: int | None, *, keep_incoming: Iterable[str] = ()
) -> Eviction:
    """Chooses what to remove until `need_bytes` are freed; all that is not used if None.

    First what is of no use to anybody: incoming files of nobody, sets that were never finished,
    entries of no set. Then the sets used longest ago, with the entries that no other set has.
    Never a set or an entry that a live claim names.
    """
    kept = set(keep_incoming)
    drop = tuple(
        sorted(
            folder
            for folder in inventory.incoming
            if folder not in kept and base(folder) not in inventory.claims
        )
    )
    freed = sum(inventory.incoming[folder] for folder in drop)
    sets = sorted(
        name
        for name in inventory.folders
        if name not in inventory.sets and base(name) not in inventory.used
    )
    users: dict[str, int] = {}
    for _, entries in inventory.sets.values():
        for entry in entries:
            users[entry] = users.get(entry, 0) + 1
    removed = [
        entry
        for entry in sorted(inventory.entries)
        if not users.get(entry) and base(entry) not in inventory.used
    ]
    freed += sum(inventory.entries[entry] for entry in removed)
    for name, (_, entries) in sorted(inventory.sets.items(), key=lambda item: (item[1][0], item)):
        if need_bytes is not None and freed >= need_bytes:
            break
        if base(name) in inventory.used:
            continue
        sets.append(name)
        for entry in sorted(entries):
            users[entry] -= 1
            unused = not users[entry] and base(entry) not in inventory.used
            if unused and entry in inventory.entries:
                removed.append(entry)
                freed += inventory.entries[entry]
    return Eviction(tuple(sets), tuple(removed), drop, freed)


def parse_inventory(output: str) -> Inventory:
    """Reads inventory.sh's answer. Raises StoreAnswerError."""
    found = Inventory()
    refs: dict[str, set[str]] = {}
    for line in answer(output):
        kind, _, rest = line.partition(" ")
        if kind in ("store", "list") and (shown := parse_listed(rest)):
            size, modified, _, path = shown
            name = path.rpartition("/")[2]
            if path.startswith("store/.incoming/"):
                folder = path.split("/")[2]
                if plain(folder):
                    found.incoming[folder] = found.incoming.get(folder, 0) + size
            elif kind == "store" and path == f"store/{name}" and ENTRY_FILE.fullmatch(name):
                found.entries[name] = size
            elif kind == "list" and path == f"listed/{name}" and plain(name):
                found.sets[name] = (modified, frozenset())
        elif kind == "ref":
            owner, _, entry = rest.partition(" ")
            refs.setdefault(owner, set()).add(entry)
        elif kind == "folder" and plain(rest):
            found.folders.add(rest)
        elif kind == "incoming" and plain(rest):
            found.incoming.setdefault(rest, 0)
        elif kind == "claim" and plain(rest):
            found.claims.add(rest)
        elif kind == "used":
            found.used.add(rest)
        elif kind == "df":
            found.free_bytes = free_storage(["", rest])
    for name, (modified, _) in found.sets.items():
        found.sets[name] = (modified, frozenset(refs.get(name, ())))
    return found


_MAX_OUTPUT_BYTES = 32 << 20
_CLEANUP_S = 10.0
_RELEASE_S = 3.0

Received = TypeVar("Received")


class StoreClient:
    """The store below `workdir` of one device.

    Every method raises DeviceError; DeviceRefused, with the script's own words, where the device
    said no.
    """

    def __init__(self, device: Transport, workdir: str) -> None:
        self._device = device
        self._workdir = workdir

    def look(
        self, sets: Sequence[FileSet], claim: str, using: Iterable[str], deadline: Deadline
    ) -> StoreView:
        """Claims what is used, then tells what is there."""
        stdin = look_input(sets, using)
        return self._ask(parse_look, "look", (claim, str(CLAIM_LASTS_S)), stdin, deadline)

    def install(
        self, own: str, touch: str, packed: bytes, deadline: Deadline, what: str
    ) -> dict[str, str]:
        """Takes in what comes by a tar and lies in our folder of .incoming, then makes the sets.

        Answers as `parse_install`.
        """
        return self._ask(parse_install, "install", (own, touch), packed, deadline, what)

    def incoming(self, own: str) -> str:
        """The path of our folder of .incoming."""
        return f"{self._workdir}/store/.incoming/{own}"

    def check(self, entries: Sequence[str], touch: str, deadline: Deadline) -> None:
        """Hashes entries; those that are not what their name says are removed."""
        stdin = "".join(f"{entry}\n" for entry in entries).encode()
        self._ask(answer, "check", (touch,), stdin, deadline)

    def inventory(self, deadline: Deadline) -> Inventory:
        """All that is there, and what of it is used."""
        return self._ask(parse_inventory, "inventory", (str(CLAIM_LASTS_S),), b"", deadline)

    def evict(self, eviction: Eviction, unclaim: Iterable[str], deadline: Deadline) -> list[str]:
        """Removes what nobody uses by now; returns what it removed, as `removed KIND NAME`."""
        arguments = (secrets.token_hex(4), str(CLAIM_LASTS_S), CONDEMNED_TOUCH)
        said = self._ask(answer, "evict", arguments, eviction.text(unclaim), deadline)
        return [line for line in said if line.startswith("removed ")]

    def remove_all(self, deadline: Deadline) -> None:
        """Removes everything, used or not."""
        self._ask(answer, "remove_all", (), b"", deadline)

    def discard(self, own: str) -> None:
        """Removes our folder of .incoming if the device can be reached."""
        path = shlex.quote(self.incoming(own))
        with contextlib.suppress(InfraError):
            self._device.shell(f"rm -rf {path}", timeout_s=_CLEANUP_S)

    def release(self, claim: str, others: str = "") -> None:
        """Takes our claim away, and those called as in `others`, if the device can be reached."""
        folder = shlex.quote(f"{self._workdir}/inuse/")
        with contextlib.suppress(InfraError):
            names = [folder + shlex.quote(claim), *([folder + others] if others else [])]
            self._device.shell(f"rm -f {' '.join(names)}", timeout_s=_RELEASE_S)

    def _ask(
        self,
        parse: Callable[[str], Received],
        name: ScriptName,
        arguments: Sequence[str],
        stdin: bytes,
        deadline: Deadline,
        what: str = "",
    ) -> Received:
        done = self._device.shell(
            f"set -- {shlex.join((self._workdir, *arguments))}\n{script(name)}",
            stdin=stdin,
            timeout_s=deadline.remaining(),
            max_output_bytes=_MAX_OUTPUT_BYTES,
            doing=f"see to its store: {name}",
        )
        try:
            return parse(done.stdout.decode("utf-8", "replace"))
        except StoreAnswerError as error:
            raise self._refused(f"{what}: {error}" if what else str(error), done) from error

    def _refused(self, problem: str, done: Completed) -> DeviceError:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        full = [line for line in said if NO_ROOM in line]
        detail = f" ({(full or said)[-1][:300]})" if said else ""
        return DeviceFull.or_refused(f"{problem}{detail}", serial=self._device.serial)


_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Cleaned:
    """What was removed from a device's store, and what stays; sizes in bytes.

    `holders` are the claims of those who use what stays. `freed_bytes` counts contents once,
    however many sets shared them.
    """

    freed_bytes: int
    kept_bytes: int
    sets_removed: tuple[str, ...]
    sets_kept: tuple[str, ...]
    holders: tuple[str, ...]


def clean(device: Transport, workdir: str, *, everything: bool = False) -> Cleaned:
    """Removes what no live process uses; with `everything`, also what is in use.

    With `everything`, who uses the device meanwhile loses its files; `holders` are then those who
    did. Marks of processes of this host that are gone do not count. Raises DeviceError.
    """
    deadline = Deadline(_TIMEOUT_S)
    store = StoreClient(device, workdir.rstrip("/"))
    before = store.inventory(deadline)
    holders = tuple(sorted(claim for claim in before.claims if not is_dead(claim)))
    if everything:
        store.remove_all(deadline)
        return _compared(before, Inventory(), holders)
    dead = [claim for claim in before.claims if is_dead(claim)]
    if dead:
        # their claims go first, so that what only they name counts as unused
        store.evict(plan_eviction(before, 0), dead, deadline)
    plan = plan_eviction(store.inventory(deadline) if dead else before, None)
    if plan.sets or plan.entries or plan.drop:
        store.evict(plan, (), deadline)
    return _compared(before, store.inventory(deadline), holders)


def _compared(before: Inventory, after: Inventory, holders: tuple[str, ...]) -> Cleaned:
    kept = set(after.sets)
    return Cleaned(
        freed_bytes=max(0, before.total_bytes - after.total_bytes),
        kept_bytes=after.total_bytes,
        sets_removed=tuple(sorted(set(before.sets) - kept)),
        sets_kept=tuple(sorted(kept)),
        holders=holders,
    )
