"""What one deployment sends: which files as a stream of their own, which packed into one.

Small files go as one tar on the stdin of the script that takes them in: a stream for each costs
more than its content. Large ones go by adb's own file protocol.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.device.store.layout import FileSet, Incoming, LinkKind, entry_name
from harness.ground.files.local_file import LocalFile
from harness.ground.files.whole_file import open_regular

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
