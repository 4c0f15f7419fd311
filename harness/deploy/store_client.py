"""The store's scripts on a device: look, install, check, evict, clean; one round trip each.

Hosts that share a device run them at the same time, and any of them may end after any command. They
are safe by the order of their steps, without a lock (its holder may be a host that cannot be
reached):

- A user of a file writes its name into its own claim first, and then looks for it.
- A remover makes a file invisible first, then reads all claims, and removes it only if none names
  it. So one of the two always sees the other.
- No name is ever used twice (each has a random end), so a delayed remover cannot hit a newer file.
- A set is valid once it is listed, by one rename, the last step of making it.

Ages of claims are counted in the device's uptime, since its clock may jump. A claim from before a
reboot is void, since its user is gone.

Each script is prelude.sh and its own file, sent as they are; they run in dash, mksh, bash and
busybox. Their answers are the output lines that begin with `transport.questions.PREFIX`; the last
one is `done`.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections import Counter
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
    base,
    is_dead,
    is_safe_name,
    look_input,
    parse_answer,
    parse_install,
    parse_listed,
    parse_look,
)
from harness.transport.device import Transport
from harness.transport.device_queries import free_storage
from harness.transport.shell import Completed

ScriptName = Literal["look", "install", "check", "inventory", "evict", "remove_all"]


@cache
def script(name: ScriptName) -> str:
    """Return the text of a script for a device."""
    folder = files("harness.deploy").joinpath("device")
    return "".join(folder.joinpath(f"{part}.sh").read_text("ascii") for part in ("prelude", name))


@dataclass
class Inventory:
    """The content of a device's store; names as they are in its folders.

    `sets`: {set: (last used, entries)} of those listed; `folders`: all folders of sets, listed or
    not; `used`: names in live claims, without the random ends; `incoming`: {folder: bytes}.
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
    """Files to be removed; `size` is that of the entries and incoming files, in bytes."""

    sets: tuple[str, ...]
    entries: tuple[str, ...]
    drop: tuple[str, ...]
    size: int

    def text(self, unclaim: Iterable[str] = ()) -> bytes:
        """Return the stdin of evict.sh."""
        orders = {"unclaim": unclaim, "set": self.sets, "entry": self.entries, "drop": self.drop}
        lines = (f"{verb} {name}\n" for verb, names in orders.items() for name in names)
        return "".join(lines).encode()


def plan_eviction(inventory: Inventory, need_bytes: int | None) -> Eviction:
    """Choose files to remove until `need_bytes` are freed; all unused ones if None.

    First useless ones: incoming files without a claim, incomplete sets, entries of no set. Then the
    sets used longest ago, with the entries that no other set has. Never a set or an entry that a
    live claim names.
    """
    unclaimed = (name for name in inventory.incoming if base(name) not in inventory.claims)
    drop = tuple(sorted(unclaimed))
    freed = sum(inventory.incoming[folder] for folder in drop)
    incomplete = inventory.folders - inventory.sets.keys()
    sets = sorted(name for name in incomplete if base(name) not in inventory.used)
    users = Counter(entry for _, entries in inventory.sets.values() for entry in entries)
    unused_entries = (entry for entry in sorted(inventory.entries) if not users[entry])
    removed = [entry for entry in unused_entries if base(entry) not in inventory.used]
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
    """Parse inventory.sh's answer. Raises StoreAnswerError."""
    inventory = Inventory()
    refs: dict[str, set[str]] = {}
    for line in parse_answer(output):
        kind, _, rest = line.partition(" ")
        if kind in ("store", "list") and (listed := parse_listed(rest)):
            size, modified, path = listed
            name = path.rpartition("/")[2]
            if path.startswith("store/.incoming/"):
                folder = path.split("/")[2]
                if is_safe_name(folder):
                    inventory.incoming[folder] = inventory.incoming.get(folder, 0) + size
            elif kind == "store" and path == f"store/{name}" and ENTRY_FILE.fullmatch(name):
                inventory.entries[name] = size
            elif kind == "list" and path == f"listed/{name}" and is_safe_name(name):
                inventory.sets[name] = (modified, frozenset())
        elif kind == "ref":
            owner, _, entry = rest.partition(" ")
            refs.setdefault(owner, set()).add(entry)
        elif kind == "folder" and is_safe_name(rest):
            inventory.folders.add(rest)
        elif kind == "incoming" and is_safe_name(rest):
            inventory.incoming.setdefault(rest, 0)
        elif kind == "claim" and is_safe_name(rest):
            inventory.claims.add(rest)
        elif kind == "used":
            inventory.used.add(rest)
        elif kind == "df":
            inventory.free_bytes = free_storage(["", rest])
    for name, (modified, _) in inventory.sets.items():
        inventory.sets[name] = (modified, frozenset(refs.get(name, ())))
    return inventory


_MAX_OUTPUT_BYTES = 32 << 20
_CLEANUP_S = 10.0
_RELEASE_S = 3.0

Received = TypeVar("Received")


class StoreClient:
    """The store below `workdir` of one device.

    Every method raises DeviceError; DeviceRefused, with the script's own message, if the device
    refused.
    """

    def __init__(self, device: Transport, workdir: str) -> None:
        self._device = device
        self._workdir = workdir

    def look(
        self, sets: Sequence[FileSet], claim: str, using: Iterable[str], deadline: Deadline
    ) -> StoreView:
        """Claim the names in `using`, then return the state of the store."""
        stdin = look_input(sets, using)
        return self._run(parse_look, "look", (claim, str(CLAIM_LASTS_S)), stdin, deadline)

    def install(
        self, folder: str, touch: str, packed: bytes, deadline: Deadline, title: str
    ) -> dict[str, str]:
        """Store the files of a tar and of `folder` of .incoming, then make the sets.

        Returns the result of `parse_install`.
        """
        return self._run(parse_install, "install", (folder, touch), packed, deadline, title)

    def incoming(self, folder: str) -> str:
        """Return the path of a folder of .incoming."""
        return f"{self._workdir}/store/.incoming/{folder}"

    def check(self, entries: Sequence[str], touch: str, deadline: Deadline) -> None:
        """Hash entries; remove those whose content differs from their name."""
        stdin = "".join(f"{entry}\n" for entry in entries).encode()
        self._run(parse_answer, "check", (touch,), stdin, deadline)

    def inventory(self, deadline: Deadline) -> Inventory:
        """Return the content of the store, and the names in use."""
        return self._run(parse_inventory, "inventory", (str(CLAIM_LASTS_S),), b"", deadline)

    def evict(self, eviction: Eviction, unclaim: Iterable[str], deadline: Deadline) -> list[str]:
        """Remove files that are still unused; return the removed ones, as `removed KIND NAME`."""
        arguments = (secrets.token_hex(4), str(CLAIM_LASTS_S), CONDEMNED_TOUCH)
        lines = self._run(parse_answer, "evict", arguments, eviction.text(unclaim), deadline)
        return [line for line in lines if line.startswith("removed ")]

    def remove_all(self, deadline: Deadline) -> None:
        """Remove everything, used or not."""
        self._run(parse_answer, "remove_all", (), b"", deadline)

    def discard(self, folder: str) -> None:
        """Remove a folder of .incoming if the device can be reached."""
        path = shlex.quote(self.incoming(folder))
        with contextlib.suppress(InfraError):
            self._device.shell(f"rm -rf {path}", timeout_s=_CLEANUP_S)

    def release(self, claim: str, others: str = "") -> None:
        """Remove a claim, and those matching `others`, if the device can be reached."""
        folder = shlex.quote(f"{self._workdir}/inuse/")
        with contextlib.suppress(InfraError):
            names = [folder + shlex.quote(claim), *([folder + others] if others else [])]
            self._device.shell(f"rm -f {' '.join(names)}", timeout_s=_RELEASE_S)

    def _run(
        self,
        parse: Callable[[str], Received],
        name: ScriptName,
        arguments: Sequence[str],
        stdin: bytes,
        deadline: Deadline,
        title: str = "",
    ) -> Received:
        completed = self._device.shell(
            f"set -- {shlex.join((self._workdir, *arguments))}\n{script(name)}",
            stdin=stdin,
            timeout_s=deadline.remaining(),
            max_output_bytes=_MAX_OUTPUT_BYTES,
            doing=f"run the store's script: {name}",
        )
        try:
            return parse(completed.stdout.decode("utf-8", "replace"))
        except StoreAnswerError as error:
            raise self._refused(f"{title}: {error}" if title else str(error), completed) from error

    def _refused(self, problem: str, completed: Completed) -> DeviceError:
        lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
        full = [line for line in lines if NO_ROOM in line]
        detail = f" ({(full or lines)[-1][:300]})" if lines else ""
        return DeviceFull.or_refused(f"{problem}{detail}", serial=self._device.serial)


_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Cleaned:
    """The removed and the remaining files of a device's store; sizes in bytes.

    `holders` are the claims to the remaining files. `freed_bytes` counts contents once, however
    many sets shared them.
    """

    freed_bytes: int
    kept_bytes: int
    sets_removed: tuple[str, ...]
    sets_kept: tuple[str, ...]
    holders: tuple[str, ...]


def clean(device: Transport, workdir: str, *, everything: bool = False) -> Cleaned:
    """Remove files that no live process uses; with `everything`, also files in use.

    With `everything`, current users of the device lose their files; `holders` are their claims.
    Claims of dead processes of this host do not count. Raises DeviceError.
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
        # dead claims are removed first, so that files named only by them count as unused
        store.evict(plan_eviction(before, 0), dead, deadline)
    plan = plan_eviction(store.inventory(deadline) if dead else before, None)
    if plan.sets or plan.entries or plan.drop:
        store.evict(plan, (), deadline)
    return _compared(before, store.inventory(deadline), holders)


def _compared(before: Inventory, after: Inventory, holders: tuple[str, ...]) -> Cleaned:
    sets = set(after.sets)
    removed, kept = tuple(sorted(set(before.sets) - sets)), tuple(sorted(sets))
    freed = max(0, before.total_bytes - after.total_bytes)
    return Cleaned(freed, after.total_bytes, removed, kept, holders)
