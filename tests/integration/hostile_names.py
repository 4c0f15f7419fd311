"""Names made to lead out of a folder, and a folder that records whether one does.

An example follows from its number.
"""

import contextlib
import ctypes
import os
import random
import shutil
import struct
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from tests.unit.containers.made import CONTEXT

Place = Literal["file", "link", "link-inside", "folder-link", "hard", "fifo", "dangling", "nothing"]
PLACES: Final[tuple[Place, ...]] = get_args(Place)

_WAYS_OUT: Final = (
    *("../../secret/secret.bin", "../../secret/conftest.py", "../../new.bin", "../new.bin"),
    *("../in/../../secret/secret.bin", "a/../../../secret/secret.bin"),
    *("..\\..\\secret\\secret.bin", "%2e%2e/%2e%2e/secret/secret.bin"),
    *("\uff0e\uff0e/\uff0e\uff0e/secret/secret.bin", "..\u2215..\u2215secret\u2215secret.bin"),
    *("....//....//secret/secret.bin", "..", ".", "", "/", "~/secret.bin", "$HOME/secret.bin"),
)
_WORDS: Final = (
    *("a", "b.bin", "B.BIN", "m.raw", "x.npy", "dir", "caf\u00e9", "cafe\u0301", "\ufb01le.bin"),
    *("conftest.py", "__init__.py", "sitecustomize.py", "pytest.ini", "x.pth", "test_x.py"),
    *("manifest.json", "results.jsonl", "run.json", "latest", "README.txt", "store", ".links"),
    *("-rf", "--out=..", "-", "C:", "C:x.bin", "a:b", "\\\\host\\x", "NUL", "con.bin", "com1"),
    *("/dev/zero", "/proc/self/environ", "a.", "a ", " a", "...", ". .", ".. ", "a\0b", "a\nb"),
    *("\x1b[2J", "\u202egnp.bin", "\u200b", "\udcff.bin", "\ud800", "x" * 256, "x" * 1100),
    *("*", "?", "{a,b}", "'a'", '"a"', "$(id)", "`id`", ";id", "|id", "&", "a\tb", "\x7f"),
)
_BETWEEN: Final = ("/", "/", "/", "\\", "//", "/./", "/../", "")


@dataclass(frozen=True)
class Example:
    """A name, and the kind of file that lies in its place."""

    number: int
    name: str
    place: Place


def make_example(number: int, outside: Path) -> Example:
    """The example of a number; absolute names lead to the folder `outside`."""
    chance = random.Random(number)
    place = PLACES[number % len(PLACES)]
    kind = number // len(PLACES) % 5
    absolute = f"{outside}/{chance.choice(('secret/secret.bin', 'new.bin', 'secret/conftest.py'))}"
    if kind == 0:
        name = chance.choice((*_WAYS_OUT, absolute, f"//{absolute}", f"file://{absolute}"))
    elif kind == 1:
        name = chance.choice(("m.bin", "m.raw", "dir/m.bin", "m (2).bin", "caf\u00e9.bin"))
    else:
        parts = [chance.choice((*_WORDS, *_WAYS_OUT)) for _ in range(chance.randint(1, 3))]
        name = "".join(part + chance.choice(_BETWEEN) for part in parts[:-1]) + parts[-1]
    if kind == 3:
        index = chance.randrange(len(name) + 1)
        inserted = chance.choice(("\0", "..", "/", "\\", ":", "\u202e", " ", "."))
        name = name[:index] + inserted + name[index:]
    if kind == 4:
        name = unicodedata.normalize(chance.choice(("NFC", "NFD", "NFKC", "NFKD")), name)
    return Example(number, name, place)


_ACCESS, _MODIFY, _ATTRIB, _OPEN = 0x1, 0x2, 0x4, 0x20
_MOVED, _CREATE, _DELETE, _GONE = 0xC0, 0x100, 0x200, 0xC00
_ALL: Final = _ACCESS | _MODIFY | _ATTRIB | _OPEN | _MOVED | _CREATE | _DELETE | _GONE
_EVENT: Final = struct.Struct("iIII")


def stays_below(name: str) -> bool:
    """Tell whether a test may itself make a file of that name in a folder."""
    return not any(part in ("", ".", "..") or "\0" in part for part in name.split("/"))


class Watched:
    """A folder in which inotify reports each file that is opened, written, made or removed."""

    def __init__(self, root: Path) -> None:
        """Watch everything but the folders for the code under test: `inputs`, `out`, `cache`."""
        self.root = root
        self.inputs, self.out, self.cache = (
            root / "work" / name for name in ("in", "out", "cache")
        )
        secret = root / "secret"
        for folder in (self.inputs, self.out, self.cache, secret / "dir", root / "cwd"):
            folder.mkdir(parents=True)
        for name in ("secret.bin", "conftest.py", "m.bin", "m.raw", "dir/m.bin", "manifest.json"):
            (secret / name).write_bytes(CONTEXT)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, Path] = {}
        for folder in (root, root / "work", secret, secret / "dir", root / "cwd"):
            watch = self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), _ALL)
            assert watch > 0, os.strerror(ctypes.get_errno())
            self._folders[watch] = folder

    def close(self) -> None:
        os.close(self._inotify)

    def new_events(self) -> list[str]:
        """Return what was done outside of those folders since the last call."""
        events = []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._inotify, 1 << 16):
                while data:
                    watch, mask, _, size = _EVENT.unpack_from(data)
                    name = data[_EVENT.size : _EVENT.size + size].rstrip(b"\0")
                    data = data[_EVENT.size + size :]
                    path = self._folders[watch] / os.fsdecode(name)
                    if path not in (self.inputs, self.out, self.cache):
                        events.append(f"{mask & _ALL:#x} {path.relative_to(self.root)}")
        return events

    def clear(self) -> None:
        """Empty the folders for the code under test."""
        for folder in (self.inputs, self.out, self.cache):
            for entry in os.scandir(os.fsencode(folder)):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)

    def put(self, below: Path, example: Example) -> None:
        """Put what the example has into a folder, if a file can have its name."""
        parts = example.name.split("/")
        if not stays_below(example.name) or example.place == "nothing":
            return
        with contextlib.suppress(OSError, UnicodeEncodeError):
            folder = below.joinpath(*parts[:-1])
            if example.place == "folder-link" and len(parts) > 1:
                below.joinpath(parts[0]).symlink_to(self.root / "secret")
                return
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / parts[-1]
            match example.place:
                case "link" | "folder-link":
                    path.symlink_to(self.root / "secret/secret.bin")
                case "link-inside":
                    path.symlink_to("../secret/secret.bin")
                case "dangling":
                    path.symlink_to(self.root / "new.bin")
                case "fifo":
                    os.mkfifo(path)
                case "hard":
                    (below / "other").write_bytes(CONTEXT)
                    path.hardlink_to(below / "other")
                case _:
                    path.write_bytes(CONTEXT)
