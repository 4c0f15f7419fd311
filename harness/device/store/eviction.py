"""What of a device's store may go, and what goes first (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.device.store.layout import ENTRY_FILE, answer, base, parse_listed, plain
from harness.device.transport.questions import free_storage


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
