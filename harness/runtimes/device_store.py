"""The store of files on a device: its layout, what its scripts are told and answer (pure).

    <workdir>/store/<sha256>.<r>    a content; `<sha256>-x.<r>` if it may be executed
    <workdir>/store/.incoming/<mark>.<r>/   what is being pushed, by whom
    <workdir>/sets/<name>-<key>.<r>/  links into the store: one runtime, or one context's files
    <workdir>/listed/<name>-<key>.<r> exists if that set is complete; its entries; last used when
    <workdir>/inuse/<mark>          what one process of a host uses, or is about to use

`<r>` is random: no name is ever used twice, see store_scripts. A content gets into the store only
after its sha256 was checked on the device, and then carries a modification time of the year 2000
that is made of the boot's id. Whoever writes to it later, through whatever link, changes that
time: so size and time tell, without hashing again, that a file is still what its name says. After
a reboot it is hashed once more.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from harness.runtimes.store_scripts import MARK

LinkKind = Literal["hard", "soft", "copy"]

MARK_LASTS_S: Final = 24 * 3600
"""How long a mark counts that nobody refreshes, in seconds of the device's uptime."""

CONDEMNED_TOUCH: Final = "198001020000.00"
_STORED_FROM: Final = 946684800
_STORED_SPAN: Final = 1 << 26
_LISTED = re.compile(r"(\d{1,19})\|(-?\d{1,19})\|(-?\d{1,19})\|(.+)")
_FREE = re.compile(r"\s(\d{1,19})\s+(\d{1,19})\s+(-?\d{1,19})\s+\d{1,3}%\s")
_FILE_NAME = re.compile(r"[A-Za-z0-9_+=@,.-]+(?:/[A-Za-z0-9_+=@,.-]+)*")
_ENTRY_FILE = re.compile(r"([0-9a-f]{64}(?:-x)?)\.([0-9a-f]{1,32})")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class StoredFile:
    """A file of a set: its name there, its local source, size in bytes, entry in the store."""

    name: str
    source: Path
    size: int
    entry: str


@dataclass(frozen=True)
class FileSet:
    """What becomes one folder on the device; `name` is that folder's, `title` is for people."""

    name: str
    title: str
    files: tuple[StoredFile, ...]


@dataclass(frozen=True)
class Incoming:
    """A file in somebody's folder of .incoming; `name` is its path there.

    `idle_s` is by the device's clock, None if unknown.
    """

    folder: str
    name: str
    size: int
    idle_s: int | None

    @property
    def mark(self) -> str:
        """The mark of whoever pushed it."""
        return self.folder.rpartition(".")[0]

    @property
    def file(self) -> str:
        """What it will be called in the store."""
        return self.name.rpartition("/")[2]

    @property
    def entry(self) -> str | None:
        """The entry it will be, if it is one."""
        found = _ENTRY_FILE.fullmatch(self.file)
        return found[1] if found else None


@dataclass
class StoreView:
    """What a device has of what was asked for.

    `sets`: {name and random end: {file: (size, time)}} of those listed; `entries`: {entry: [(file
    in the store, size, time)]} of the whole store. A time is None where the device tells none.
    `free_bytes` is None where df did not tell.
    """

    boot: str = ""
    hashing: bool = True
    tar: bool = False
    links: LinkKind = "copy"
    free_bytes: int | None = None
    sets: dict[str, dict[str, tuple[int, int | None]]] = field(default_factory=dict)
    entries: dict[str, list[tuple[str, int, int | None]]] = field(default_factory=dict)
    incoming: list[Incoming] = field(default_factory=list)
    incoming_folders: set[str] = field(default_factory=set)
    marks: frozenset[str] = frozenset()

    @property
    def store_bytes(self) -> int:
        """The size of all entries together."""
        return sum(size for found in self.entries.values() for _, size, _ in found)

    def found_set(self, wanted: FileSet) -> str | None:
        """The folder of a complete and unchanged set, as it is called in `sets`."""
        for folder in self.instances(wanted):
            files = self.sets[folder]
            if all(self._good(files.get(file.name), file.size) for file in wanted.files):
                return folder
        return None

    def instances(self, wanted: FileSet) -> list[str]:
        """All listed folders of a set, good ones and others."""
        return sorted(name for name in self.sets if name.rpartition(".")[0] == wanted.name)

    def found_entry(self, entry: str, size: int) -> str | None:
        """The file in the store with this content, unchanged."""
        for name, found_size, found_time in self.entries.get(entry, ()):
            if self._good((found_size, found_time), size):
                return name
        return None

    def unchecked_entry(self, entry: str, size: int) -> str | None:
        """The file in the store that had this content before the device's last reboot."""
        for name, found_size, found_time in self.entries.get(entry, ()):
            if found_size != size or found_time is None or found_time == self._stored_at:
                continue
            if _STORED_FROM <= found_time < _STORED_FROM + _STORED_SPAN:
                return name
        return None

    @property
    def stored_at_touch(self) -> str:
        """The modification time of what is stored in this boot, as `touch -t` takes it (UTC)."""
        return time.strftime("%Y%m%d%H%M.%S", time.gmtime(self._stored_at))

    @property
    def _stored_at(self) -> int:
        return stored_at(self.boot)

    def _good(self, found: tuple[int, int | None] | None, size: int) -> bool:
        return found is not None and found[0] == size and found[1] in (None, self._stored_at)


class StoreAnswerError(ValueError):
    """A script said that it failed (the text is its own), or did not come to its end."""


def stored_at(boot: str) -> int:
    """The modification time (seconds since 1970) of what is stored in a boot, by its id."""
    return _STORED_FROM + zlib.crc32(boot.encode()) % _STORED_SPAN


def entry_name(sha256: str, mode: int) -> str:
    """The name of an entry for content of this hash, executable or not."""
    return f"{sha256}-x" if mode & 0o111 else sha256


def valid_name(name: str) -> bool:
    """Whether a file may be called so inside a set: no spaces, no `..`, nothing a shell expands."""
    parts = name.split("/")
    return bool(_FILE_NAME.fullmatch(name)) and not any(
        part in (".", "..") or part.startswith("-") for part in parts
    )


def look_input(sets: Iterable[FileSet], using: Iterable[str]) -> bytes:
    """stdin of LOOK_SCRIPT: these sets, and all that the mark names."""
    names = "".join(f"{wanted.name}\n" for wanted in sets)
    return (f"{names}\n" + "".join(f"{name}\n" for name in using)).encode()


def names_used(sets: Iterable[FileSet]) -> list[str]:
    """What a mark must name to keep these sets: them and their entries."""
    names: dict[str, None] = {}
    for wanted in sets:
        names[wanted.name] = None
        names.update((file.entry, None) for file in wanted.files)
    return list(names)


def parse_look(output: str) -> StoreView:
    """Reads LOOK_SCRIPT's answer. Raises StoreAnswerError."""
    lines = answer(output)
    timed = "untimed" not in lines
    view = StoreView(hashing="unhashed" not in lines, tar="tar" in lines)
    incoming: list[tuple[str, str, int, int]] = []
    now = None
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind in ("file", "now"):
            found = _LISTED.fullmatch(rest)
            if not found:
                continue
            size, modified, changed, path = int(found[1]), int(found[2]), int(found[3]), found[4]
            if kind == "now":
                now = changed
            elif path.startswith("sets/") and path.count("/") >= 2:
                folder, name = path.split("/", 2)[1:]
                if folder in view.sets:
                    view.sets[folder][name] = (size, modified if timed else None)
            elif path.startswith("store/.incoming/") and path.count("/") >= 3:
                folder, name = path.split("/", 3)[2:]
                incoming.append((folder, name, size, changed))
            elif entry := _ENTRY_FILE.fullmatch(path.removeprefix("store/")):
                at = modified if timed else None
                view.entries.setdefault(entry[1], []).append((entry[0], size, at))
        elif kind == "listed" and _PLAIN.fullmatch(rest):
            view.sets[rest] = {}
        elif kind == "links" and rest in ("hard", "soft"):
            view.links = "hard" if rest == "hard" else "soft"
        elif kind == "boot":
            view.boot = rest[:100]
        elif kind == "mark" and plain(rest):
            view.marks |= {rest}
        elif kind == "df":
            view.free_bytes = parse_free(rest)
    view.incoming_folders = {folder for folder, *_ in incoming if plain(folder)}
    view.incoming = [
        Incoming(folder, name, size, None if now is None else now - changed)
        for folder, name, size, changed in incoming
        if plain(folder) and plain(name.removeprefix("ready/"))
    ]
    return view


def parse_free(text: str) -> int | None:
    """Free bytes from a line of `df -kP`."""
    space = _FREE.search(f" {text} ")
    return max(0, int(space[3])) * 1024 if space else None


def parse_listed(text: str) -> tuple[int, int, str] | None:
    """Size, modification time and path from a line of a script's `show`."""
    found = _LISTED.fullmatch(text)
    return (int(found[1]), int(found[2]), found[4]) if found else None


def plain(name: str) -> bool:
    """Whether a name that a device told can be told back to it: no path, nothing to expand."""
    return bool(_PLAIN.fullmatch(name)) and len(name) <= 255


@dataclass(frozen=True)
class Placed:
    """What PLACE_SCRIPT found: {entry: its wrong hash}, and entries no longer in the store."""

    damaged: Mapping[str, str]
    absent: Sequence[str]

    @property
    def done(self) -> bool:
        """Whether the sets were made."""
        return not self.damaged and not self.absent


def parse_place(output: str) -> Placed:
    """Reads PLACE_SCRIPT's answer. Raises StoreAnswerError."""
    damaged, absent = {}, []
    for line in answer(output):
        kind, *rest = line.split(" ")
        if kind == "damaged" and len(rest) == 2:
            damaged[rest[0]] = rest[1][:64]
        elif kind == "absent" and rest:
            absent.append(rest[0])
    return Placed(damaged, absent)


def answer(output: str) -> list[str]:
    """The lines that a script means for us. Raises StoreAnswerError."""
    lines = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
    for line in lines:
        if line.startswith("fail "):
            raise StoreAnswerError(line.removeprefix("fail ")[:300])
    if "done" not in lines:
        raise StoreAnswerError("its script did not come to an end")
    return lines
