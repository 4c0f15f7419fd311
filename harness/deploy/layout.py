"""The store of files on a device: its layout, what its scripts are told and answer (pure).

    <workdir>/store/<sha256>.<r>    a content; `<sha256>-x.<r>` if it may be executed
    <workdir>/store/.incoming/<claim>.<r>/   what is being pushed, by whom
    <workdir>/sets/<name>-<key>.<r>/  links into the store: one runtime, or one context's files
    <workdir>/listed/<name>-<key>.<r> exists if that set is complete; its entries; last used when
    <workdir>/inuse/<claim>          what one process of a host uses, or is about to use

`<r>` is random: no name is ever used twice, see scripts. A content gets into the store only
after its sha256 was checked on the device, and then carries a modification time of the year 2000
that is made of the boot's id. Whoever writes to it later, through whatever link, changes that
time: so size and time tell, without hashing again, that a file is still what its name says. After
a reboot it is hashed once more.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from harness.core.local_file import LocalFile
from harness.transport.questions import PREFIX, free_storage

LinkKind = Literal["hard", "soft", "copy"]

CLAIM_LASTS_S: Final = 24 * 3600
"""How long a claim counts that nobody refreshes, in seconds of the device's uptime."""

CONDEMNED_TOUCH: Final = "198001020000.00"
_STORED_FROM: Final = 946684800
_STORED_SPAN: Final = 1 << 26
_LISTED = re.compile(r"(\d{1,19})\|(-?\d{1,19})\|(-?\d{1,19})\|(.+)")
ENTRY_FILE: Final = re.compile(r"([0-9a-f]{64}(?:-x)?)\.([0-9a-f]{1,32})")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class FileSet:
    """What becomes one folder on the device; `name` is that folder's, `title` is for people."""

    name: str
    title: str
    files: tuple[LocalFile, ...]

    @property
    def entries(self) -> dict[str, LocalFile]:
        return {entry_name(file): file for file in self.files}


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
    def claim(self) -> str:
        return base(self.folder)

    @property
    def file(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def entry(self) -> str | None:
        found = ENTRY_FILE.fullmatch(self.file)
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
    links: LinkKind = "copy"
    free_bytes: int | None = None
    sets: dict[str, dict[str, tuple[int, int | None]]] = field(default_factory=dict)
    entries: dict[str, list[tuple[str, int, int | None]]] = field(default_factory=dict)
    incoming: list[Incoming] = field(default_factory=list)
    incoming_folders: set[str] = field(default_factory=set)
    claims: frozenset[str] = frozenset()

    @property
    def store_bytes(self) -> int:
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
        return sorted(name for name in self.sets if base(name) == wanted.name)

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


def entry_name(file: LocalFile) -> str:
    """The name of the entry that holds a file's content, executable or not."""
    return f"{file.sha256}-x" if file.mode & 0o111 else file.sha256


def look_input(sets: Iterable[FileSet], using: Iterable[str]) -> bytes:
    """stdin of look.sh: these sets, and all that the claim names."""
    names = "".join(f"{wanted.name}\n" for wanted in sets)
    return (f"{names}\n" + "".join(f"{name}\n" for name in using)).encode()


def names_used(sets: Iterable[FileSet]) -> list[str]:
    """What a claim must name to keep these sets: them and their entries."""
    names: dict[str, None] = {}
    for wanted in sets:
        names[wanted.name] = None
        names.update(dict.fromkeys(wanted.entries))
    return list(names)


def parse_look(output: str) -> StoreView:
    """Reads look.sh's answer. Raises StoreAnswerError."""
    lines = answer(output)
    timed = "untimed" not in lines
    view = StoreView(hashing="unhashed" not in lines)
    incoming: list[tuple[str, str, int, int]] = []
    now = None
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind in ("file", "now"):
            if not (shown := parse_listed(rest)):
                continue
            size, modified, changed, path = shown
            if kind == "now":
                now = changed
            elif path.startswith("sets/") and path.count("/") >= 2:
                folder, name = path.split("/", 2)[1:]
                if folder in view.sets:
                    view.sets[folder][name] = (size, modified if timed else None)
            elif path.startswith("store/.incoming/") and path.count("/") >= 3:
                folder, name = path.split("/", 3)[2:]
                incoming.append((folder, name, size, changed))
            elif entry := ENTRY_FILE.fullmatch(path.removeprefix("store/")):
                at = modified if timed else None
                view.entries.setdefault(entry[1], []).append((entry[0], size, at))
        elif kind == "listed" and _PLAIN.fullmatch(rest):
            view.sets[rest] = {}
        elif kind == "links" and rest in ("hard", "soft"):
            view.links = "hard" if rest == "hard" else "soft"
        elif kind == "boot":
            view.boot = rest[:100]
        elif kind == "claim" and plain(rest):
            view.claims |= {rest}
        elif kind == "df":
            view.free_bytes = free_storage(["", rest])
    view.incoming_folders = {folder for folder, *_ in incoming if plain(folder)}
    view.incoming = [
        Incoming(folder, name, size, None if now is None else now - changed)
        for folder, name, size, changed in incoming
        if plain(folder) and plain(name.removeprefix("ready/"))
    ]
    return view


def parse_listed(text: str) -> tuple[int, int, int, str] | None:
    """Size, times of modification and change, and path from a line of a script's `show`."""
    found = _LISTED.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3]), found[4]) if found else None


def base(name: str) -> str:
    """A name without its random end."""
    return name.rpartition(".")[0]


def plain(name: str) -> bool:
    """Whether a name that a device told can be told back to it: no path, nothing to expand."""
    return bool(_PLAIN.fullmatch(name)) and len(name) <= 255


def parse_install(output: str) -> dict[str, str]:
    """Reads install.sh's answer: why no set was made, or nothing.

    {entry: wrong hash} of what arrived damaged, {entry: ""} of what is no longer in the store.
    Raises StoreAnswerError.
    """
    wrong = {}
    for line in answer(output):
        kind, *rest = line.split(" ")
        if kind == "damaged" and len(rest) == 2:
            wrong[rest[0]] = rest[1][:64]
        elif kind == "absent" and rest:
            wrong[rest[0]] = ""
    return wrong


def answer(output: str) -> list[str]:
    """The lines that a script means for us. Raises StoreAnswerError."""
    lines = [line[len(PREFIX) :] for line in output.splitlines() if line.startswith(PREFIX)]
    for line in lines:
        if line.startswith("fail "):
            raise StoreAnswerError(line.removeprefix("fail ")[:300])
    if "done" not in lines:
        raise StoreAnswerError("its script did not come to an end")
    return lines


_CLAIM: Final = re.compile(r"([A-Za-z0-9_.]{1,60})-(\d{1,10})-([0-9a-f]{8})")


def own_claim(run: str = "") -> str:
    """A new claim for this process: host, process id, and its `run` or something random."""
    return f"{_host()}-{os.getpid()}-{_token(run) if run else secrets.token_hex(4)}"


def claims_of(claim: str) -> str:
    """A shell pattern for the claims of all processes of a run, one of which has this one."""
    return f"*-{claim.rpartition('-')[2]}"


def _token(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:8]


def holder(claim: str) -> str:
    """Who left a claim, for people."""
    found = _CLAIM.fullmatch(claim)
    return f"process {found[2]} on {found[1]}" if found else claim


def is_dead(claim: str) -> bool:
    """Whether a claim is of a process of this host that is gone; of other hosts nobody can say."""
    found = _CLAIM.fullmatch(claim)
    if found is None or found[1] != _host():
        return False
    try:
        os.kill(int(found[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", socket.gethostname()).lstrip(".")[:60] or "host"
