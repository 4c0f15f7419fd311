"""The store of files on a device: its layout, and the inputs and answers of its scripts (pure).

    <workdir>/store/<sha256>.<r>    a content; `<sha256>-x.<r>` if it is executable
    <workdir>/store/.incoming/<claim>.<r>/   files being pushed under a claim
    <workdir>/sets/<name>-<key>.<r>/  links into the store: one runtime, or one context's files
    <workdir>/listed/<name>-<key>.<r> the entries of a complete set; its mtime is the last use
    <workdir>/inuse/<claim>          names that one process of a host uses, or is about to use

`<r>` is random: no name is ever used twice, see scripts. A content gets into the store only after
its sha256 was checked on the device, and then has a modification time of the year 2000 that is
derived from the boot's id. Any later write to it, through whatever link, changes that time: so size
and time show, without hashing again, that a file still has the content of its name. After a reboot
it is hashed once more.
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

from harness.core.files import LocalFile
from harness.transport.device_queries import PREFIX, free_storage

LinkKind = Literal["hard", "soft", "copy"]

CLAIM_LASTS_S: Final = 24 * 3600
"""The lifetime of a claim that is not refreshed, in seconds of the device's uptime."""

CONDEMNED_TOUCH: Final = "198001020000.00"
_STORED_FROM: Final = 946684800
_STORED_SPAN: Final = 1 << 26
_LISTED = re.compile(r"(\d{1,19})\|(-?\d{1,19})\|(.+)")
ENTRY_FILE: Final = re.compile(r"([0-9a-f]{64}(?:-x)?)\.([0-9a-f]{1,32})")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class FileSet:
    """The files of one folder on the device; `name` is that folder's, `title` is for people."""

    name: str
    title: str
    files: tuple[LocalFile, ...]

    @property
    def entries(self) -> dict[str, LocalFile]:
        return {entry_name(file): file for file in self.files}


@dataclass
class StoreView:
    """The state of a device's store, for the sets in question.

    `sets`: {name and random end: {file: (size, time)}} of those listed; `entries`: {entry: [(file
    in the store, size, time)]} of the whole store; `incoming`: {folder: bytes}. A time is None if
    the device reports none. `free_bytes` is None if df did not report it.
    """

    boot: str = ""
    hashing: bool = True
    links: LinkKind = "copy"
    free_bytes: int | None = None
    sets: dict[str, dict[str, tuple[int, int | None]]] = field(default_factory=dict)
    entries: dict[str, list[tuple[str, int, int | None]]] = field(default_factory=dict)
    incoming: dict[str, int] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()

    @property
    def store_bytes(self) -> int:
        return sum(size for stored in self.entries.values() for _, size, _ in stored)

    def find_set(self, file_set: FileSet) -> str | None:
        """Return the folder in `sets` of a complete and unchanged set, or None."""
        for folder in self.instances(file_set):
            files = self.sets[folder]
            if all(self._is_intact(files.get(file.name), file.size) for file in file_set.files):
                return folder
        return None

    def instances(self, file_set: FileSet) -> list[str]:
        """Return all listed folders of a set, intact or not."""
        return sorted(name for name in self.sets if base(name) == file_set.name)

    def find_entry(self, entry: str, size: int) -> str | None:
        """Return the file in the store with this content, unchanged, or None."""
        for name, found_size, found_time in self.entries.get(entry, ()):
            if self._is_intact((found_size, found_time), size):
                return name
        return None

    def unchecked_entry(self, entry: str, size: int) -> str | None:
        """Return the file in the store that had this content before the device's last reboot."""
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

    def _is_intact(self, status: tuple[int, int | None] | None, size: int) -> bool:
        return status is not None and status[0] == size and status[1] in (None, self._stored_at)


class StoreAnswerError(ValueError):
    """A script reported a failure (the text is its own), or did not reach its end."""


def stored_at(boot: str) -> int:
    """Return the modification time (seconds since 1970) of files stored during a boot."""
    return _STORED_FROM + zlib.crc32(boot.encode()) % _STORED_SPAN


def entry_name(file: LocalFile) -> str:
    """Return the name of the entry with a file's content, executable or not."""
    return f"{file.sha256}-x" if file.mode & 0o111 else file.sha256


def look_input(sets: Iterable[FileSet], using: Iterable[str]) -> bytes:
    """Return the stdin of look.sh: these sets, and all names of the claim."""
    names = "".join(f"{file_set.name}\n" for file_set in sets)
    return (f"{names}\n" + "".join(f"{name}\n" for name in using)).encode()


def names_used(sets: Iterable[FileSet]) -> list[str]:
    """Return the names for a claim to these sets: of the sets and their entries."""
    names = (name for file_set in sets for name in (file_set.name, *file_set.entries))
    return list(dict.fromkeys(names))


def parse_look(output: str) -> StoreView:
    """Parse look.sh's answer. Raises StoreAnswerError."""
    lines = parse_answer(output)
    timed = "untimed" not in lines
    view = StoreView(hashing="unhashed" not in lines)
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "file":
            if not (listed := parse_listed(rest)):
                continue
            size, modified, path = listed
            if path.startswith("sets/") and path.count("/") >= 2:
                folder, name = path.split("/", 2)[1:]
                if folder in view.sets:
                    view.sets[folder][name] = (size, modified if timed else None)
            elif path.startswith("store/.incoming/") and path.count("/") >= 3:
                folder = path.split("/", 3)[2]
                if is_safe_name(folder):
                    view.incoming[folder] = view.incoming.get(folder, 0) + size
            elif entry := ENTRY_FILE.fullmatch(path.removeprefix("store/")):
                mtime = modified if timed else None
                view.entries.setdefault(entry[1], []).append((entry[0], size, mtime))
        elif kind == "listed" and _PLAIN.fullmatch(rest):
            view.sets[rest] = {}
        elif kind == "links" and rest in ("hard", "soft"):
            view.links = "hard" if rest == "hard" else "soft"
        elif kind == "boot":
            view.boot = rest[:100]
        elif kind == "claim" and is_safe_name(rest):
            view.claims |= {rest}
        elif kind == "df":
            view.free_bytes = free_storage(["", rest])
    return view


def parse_listed(text: str) -> tuple[int, int, str] | None:
    """Parse (size, modification time, path) from a line of a script's `show`."""
    match = _LISTED.fullmatch(text)
    return (int(match[1]), int(match[2]), match[3]) if match else None


def base(name: str) -> str:
    """Return a name without its random end."""
    return name.rpartition(".")[0]


def is_safe_name(name: str) -> bool:
    """Return whether a name from a device can be sent back to it: no path, nothing to expand."""
    return bool(_PLAIN.fullmatch(name)) and len(name) <= 255


def parse_install(output: str) -> dict[str, str]:
    """Parse install.sh's answer: why no set was made, or {} if all were.

    {entry: wrong hash} of files that arrived damaged, {entry: ""} of those no longer in the store.
    Raises StoreAnswerError.
    """
    wrong = {}
    for line in parse_answer(output):
        kind, *rest = line.split(" ")
        if kind == "damaged" and len(rest) == 2:
            wrong[rest[0]] = rest[1][:64]
        elif kind == "absent" and rest:
            wrong[rest[0]] = ""
    return wrong


def parse_answer(output: str) -> list[str]:
    """Return the lines of a script's answer, without `PREFIX`. Raises StoreAnswerError."""
    lines = [line[len(PREFIX) :] for line in output.splitlines() if line.startswith(PREFIX)]
    for line in lines:
        if line.startswith("fail "):
            raise StoreAnswerError(line.removeprefix("fail ")[:300])
    if "done" not in lines:
        raise StoreAnswerError("the device's script ended early")
    return lines


_CLAIM: Final = re.compile(r"([A-Za-z0-9_.]{1,60})-(\d{1,10})-([0-9a-f]{8})")


def new_claim(run: str = "") -> str:
    """Return a claim of this process: host, pid, and a token of its `run` or a random one."""
    token = hashlib.sha256(run.encode()).hexdigest()[:8] if run else secrets.token_hex(4)
    return f"{_host()}-{os.getpid()}-{token}"


def claims_pattern(claim: str) -> str:
    """Return a shell pattern for the claims of all processes of a claim's run."""
    return f"*-{claim.rpartition('-')[2]}"


def describe_claim(claim: str) -> str:
    """Describe the process that made a claim."""
    match = _CLAIM.fullmatch(claim)
    return f"process {match[2]} on {match[1]}" if match else claim


def is_dead(claim: str) -> bool:
    """Return whether a claim's process is gone; False for other hosts, which are unknown."""
    match = _CLAIM.fullmatch(claim)
    if match is None or match[1] != _host():
        return False
    try:
        os.kill(int(match[2]), 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, ProcessLookupError)
    return False


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", socket.gethostname()).lstrip(".")[:60] or "host"
