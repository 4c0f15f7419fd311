"""Storage of simulated devices for one run, over contents that all runs share.

Runs never wait for each other's simulated devices: each process of one has its own. Their storage
begins with the contents of the lasting device's store, as hard links: they are read-only, so
nothing is copied, and the store's own scripts find them there (see layout) and make sets of them.
Contents that a run brings go into the lasting store when it ends; what it removed or found damaged
goes there, too.

    <root>/<name>/             the lasting device, as `qnn-harness simulator start` starts it
    <root>/.runs/<run>/<name>/ an instance of a process of a run, which holds a lock on `<run>`

The folders of a run that was killed are dealt with by the next one that begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.core.cache import PRIVATE
from harness.core.errors import InfraError
from harness.core.names_inside import (
    NotInsideError,
    create_inside,
    listed_inside,
    open_below,
)
from harness.deploy.layout import ENTRY_FILE, base
from harness.lab.inventory import DEFAULT_WORKDIR
from harness.simulator.storage import LOCK_FILE

_WORKDIR: Final = DEFAULT_WORKDIR.strip("/")
_RUNS: Final = ".runs"
_LINKS: Final = ".links"
_FOLDERS: Final = ("store", "sets", "listed", "inuse")
_MOST_LINKS_BYTES: Final = 100
_BEGAN_WITH: Final = ".began-with-"


class Instances:
    """The storage of one run's simulated devices; nothing is made before `storage` is called.

    Processes that name the same `run` and `process` share its devices. Safe to close twice, and by
    another thread than the one that asks for storage: nothing begins after that.
    """

    def __init__(self, root: Path, run: str | None = None, process: str = "") -> None:
        """`run` is any text that no other run has; by default this object is a run of its own.

        Each `process` of a run has devices of its own, and uses one only while no other does.
        """
        self._root = root
        self._runs = root / _RUNS
        self._run = run or secrets.token_hex(16)
        self._folder = self._runs / _short(f"{self._run} {process}".strip())
        self._held: int | None = None
        self._closed = False
        self._asked = threading.Lock()

    def key(self, name: str) -> str:
        """What all processes of the run call its device `name`."""
        return f"simulated:{self._runs / _short(self._run) / name}"

    def storage(self, name: str) -> Path:
        """The storage folder of this run's device `name`. Raises InfraError."""
        try:
            with self._asked:
                if self._closed:
                    raise InfraError(f"{name} is not begun: its run has ended")
                return self._storage(name)
        except OSError as error:
            why = f"cannot make an instance of {name} in {self._runs}: {error.strerror or error}"
            raise InfraError(why) from error

    def _storage(self, name: str) -> Path:
        with self._alone():
            if self._held is None:
                self._remove_dead()
                self._folder.mkdir(mode=PRIVATE, exist_ok=True)
                self._held = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._held, fcntl.LOCK_SH)
            storage = self._folder / name
            if not storage.exists():
                self._begin(name)
            return storage

    def close(self) -> None:
        """Keeps what the devices got and removes them, unless another process still uses them."""
        with self._asked:
            self._closed = True
            held, self._held = self._held, None
        if held is None:
            return
        with contextlib.suppress(OSError), self._alone():
            # closing alone leaves it to a child that another thread has just forked
            fcntl.flock(held, fcntl.LOCK_UN)
            os.close(held)
            self._remove_dead()

    def _begin(self, name: str) -> None:
        """Makes the storage of an instance; what it begins with is noted for the end."""
        storage = self._folder / name
        fresh = self._folder / f".{name}"
        fresh.mkdir(mode=PRIVATE)
        (fresh / LOCK_FILE).touch()
        began_with = link_store(_store_of(self._root / name), fresh / _WORKDIR)
        note = self._folder / f"{_BEGAN_WITH}{name}"
        note.write_text("".join(f"{name}\n" for name in sorted(began_with)))
        fresh.rename(storage)

    def _remove_dead(self) -> None:
        """Ends the runs that no process holds any more."""
        for folder in self._runs.iterdir():
            with contextlib.suppress(OSError):
                held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._end(folder)
                finally:
                    os.close(held)

    def _end(self, folder: Path) -> None:
        for note in folder.glob(f"{_BEGAN_WITH}*"):
            name = note.name.removeprefix(_BEGAN_WITH)
            with contextlib.suppress(OSError):
                began_with = set(note.read_text().split("\n")) - {""}
                lasting = self._root / name
                if not lasting.exists():
                    lasting.mkdir(mode=PRIVATE)
                    (lasting / LOCK_FILE).touch()
                keep_store(_store_of(folder / name), _store_of(lasting), began_with)
        shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other processes from beginning or ending instances: it takes milliseconds."""
        self._runs.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        held = os.open(self._runs, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _store_of(storage: Path) -> Path:
    """The store of a device, which may put links anywhere in its storage; nobody follows them.

    Raises NotInsideError where one stands in the place of the store, or of a folder of it; OSError.
    """
    for folder in _FOLDERS:
        with contextlib.suppress(FileNotFoundError):
            listed_inside(storage, f"{_WORKDIR}/{folder}")
    return storage / _WORKDIR


def link_store(source: Path, target: Path) -> set[str]:
    """Makes the store `target` begin with the contents of `source`; returns their names.

    Nothing where `source` holds no hard links. Raises OSError.
    """
    if not _begun(source, target):
        return set()
    return {name for name in _contents(source) if _link(source, target, name)}


def keep_store(source: Path, target: Path, began_with: set[str]) -> None:
    """Takes over into the store `target` what `source` has got, or lost, since it `began_with`.

    Nothing is taken away while somebody uses `target`. Raises OSError.
    """
    if not _begun(source, target):
        return
    left, there = _contents(source), {base(name) for name in _contents(target)}
    for name in left - began_with:
        if base(name) not in there:
            _link(source, target, name)
    if not any((target / "inuse").iterdir()):
        for name in began_with - left:
            (target / "store" / name).unlink(missing_ok=True)


def _begun(source: Path, target: Path) -> bool:
    """Makes the folders of a store that links as `source` does; False if it has no hard links."""
    try:
        with open_below(source, _LINKS) as stream:
            links = stream.read(_MOST_LINKS_BYTES)
    except (FileNotFoundError, NotInsideError):
        return False
    if links.strip() != b"hard":
        return False
    for folder in _FOLDERS:
        (target / folder).mkdir(parents=True, exist_ok=True)
    with create_inside(target, _LINKS, replace=True) as made:
        made.write(links)
    return True


def _contents(store: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return {name for name in os.listdir(store / "store") if ENTRY_FILE.fullmatch(name)}
    return set()


def _link(source: Path, target: Path, name: str) -> bool:
    """Links a content; one that is no file, or was removed meanwhile, is left out."""
    path = source / "store" / name
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISREG(path.lstat().st_mode):
            with contextlib.suppress(FileExistsError):
                os.link(path, target / "store" / name, follow_symlinks=False)
            return True
    return False
