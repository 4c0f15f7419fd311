"""What one deployment sends: which files as a stream of their own, which packed into one (pure).

Small files go as one tar on the stdin of the script that takes them in: a stream for each costs
more than its content. Large ones go by adb's own file protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.runtimes.device_store import FileSet, Incoming, LinkKind, StoredFile
from harness.runtimes.tar_blocks import END_OF_TAR, tar_file, tar_link

SMALL_BYTES = 64 << 10
ALL_PUSHED = ".pushed"
"""The file in our folder of .incoming whose coming says that all others have come."""
_MOST_PACKED_BYTES = 16 << 20


@dataclass(frozen=True)
class Removal:
    """What the script removes once the sets are there."""

    unlist: Sequence[str] = ()
    drop: Sequence[str] = ()
    unmark: Sequence[str] = ()


@dataclass(frozen=True)
class Parcel:
    """A deployment made ready: `packed` and `alone` are local files by their name in the store.

    `notes` are small files for the script, by their name in our folder of .incoming.
    """

    packed: Mapping[str, Path]
    alone: Mapping[str, StoredFile]
    notes: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """Bytes that go by the file protocol."""
        return sum(file.size for file in self.alone.values())


def make_parcel(
    sets: Sequence[FileSet],
    places: Mapping[str, str],
    missing: Mapping[str, StoredFile],
    adopted: Mapping[str, Incoming],
    removal: Removal,
    *,
    end: str,
    links: LinkKind,
    pack: bool,
) -> Parcel:
    """Divides what is missing, and writes down what the script has to do.

    `places` maps each entry of the sets to its name in the store, `end` is the random end of the
    new sets' names, `adopted` what others left in .incoming.
    """
    packed: dict[str, Path] = {}
    alone: dict[str, StoredFile] = {}
    room = _MOST_PACKED_BYTES if pack else 0
    for entry, file in missing.items():
        if entry in adopted:
            continue
        if file.size <= min(room, SMALL_BYTES):
            room -= file.size
            packed[places[entry]] = file.source
        else:
            alone[places[entry]] = file
    # the last one is hashed when all have come: let it be a small one
    alone = dict(sorted(alone.items(), key=lambda item: -item[1].size))
    made = [(places[f.entry], f"sets/{s.name}.{end}/{f.name}") for s in sets for f in s.files]
    control = [f"adopt {found.folder}/{found.name}" for found in adopted.values()]
    control += [f"unlist {name}" for name in removal.unlist]
    control += [f"drop {name}" for name in removal.drop]
    control += [f"unmark {name}" for name in removal.unmark]
    notes = {".control": _lines(control), ".links": _lines(f"{e} {path}" for e, path in made)}
    if pack and alone:
        notes[".expected"] = _lines(alone)
    if pack and links != "copy":
        notes[".links.tar"] = _link_archive(made, links)
    for one in sets:
        entries = dict.fromkeys(places[file.entry] for file in one.files)
        notes[f"listed/{one.name}.{end}"] = _lines(entries)
    return Parcel(packed, alone, notes)


def stored_mode(name: str) -> int:
    """The permission bits of a file in the store, by its name."""
    return 0o555 if "-x." in name else 0o444


def archive(parcel: Parcel) -> bytes:
    """The tar of what is packed, and of the notes. Raises OSError for a local file."""
    parts: list[bytes] = []
    for name, path in parcel.packed.items():
        parts += tar_file(f"ready/{name}", path.read_bytes(), stored_mode(name))
    for name, content in parcel.notes.items():
        parts += tar_file(name, content)
    return b"".join((*parts, END_OF_TAR))


def _link_archive(made: Iterable[tuple[str, str]], links: LinkKind) -> bytes:
    parts: list[bytes] = []
    for entry, path in made:
        up = "" if links == "hard" else "../" * path.count("/")
        hard = links == "hard"
        parts += tar_link(path, f"{up}store/{entry}", stored_mode(entry), hard=hard)
    return b"".join((*parts, END_OF_TAR))


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
