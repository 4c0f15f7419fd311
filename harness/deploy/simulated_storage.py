"""Storage of simulated devices for one run, with contents shared by all runs.

Runs never wait for each other's simulated devices: each process of a run has its own. Their storage
begins with the contents of the lasting device's store, as hard links: they are read-only, so
nothing is copied, and the store's own scripts find them there (see layout) and make sets of them.
When a run ends, its new contents are added to the lasting store, and contents that it removed or
found damaged are removed there, too.

    <root>/<name>/             the lasting device, as `qnn-harness simulator start` starts it
    <root>/.runs/<run>/<name>/ an instance of a process of a run, which holds a lock on `<run>`

The folders of a run that was killed are cleaned up by the next one that begins.
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

from harness.core.errors import InfraError
from harness.core.files import disk_errors
from harness.core.paths_inside import NotInsideError, create_inside, list_inside, open_below
from harness.core.state_folders import PRIVATE
from harness.deploy.layout import ENTRY_FILE, base
from harness.lab.device_config import DEFAULT_WORKDIR
from harness.simulator.storage import LOCK_FILE

_WORKDIR: Final = DEFAULT_WORKDIR.strip("/")
_RUNS: Final = ".runs"
_LINKS: Final = ".links"
_FOLDERS: Final = ("store", "sets", "listed", "inuse")
_MOST_LINKS_BYTES: Final = 100
_BEGAN_WITH: Final = ".began-with-"


class Instances:
    """The storage of one run's simulated devices; nothing is created before `storage` is called.

    Processes with the same `run` and `process` share its devices. Safe to close twice, and from
    another thread than the one that calls `storage`: nothing is created after that.
    """

    def __init__(self, root: Path, run: str | None = None, process: str = "") -> None:
        """Take a `run`, any unique text; by default this object is a run of its own.

        Each `process` of a run has devices of its own, and uses one only while no other does.
        """
        self._root = root
        self._runs = root / _RUNS
        self._run = run or secrets.token_hex(16)
        self._folder = self._runs / _short(f"{self._run} {process}".strip())
        self._descriptor: int | None = None
        self._closed = False
        self._lock = threading.Lock()

    def key(self, name: str) -> str:
        """Return the key of device `name` that all processes of the run share."""
        return f"simulated:{self._runs / _short(self._run) / name}"

    def storage(self, name: str) -> Path:
        """Return the storage folder of this run's device `name`. Raises InfraError."""
        with self._lock:
            if self._closed:
                raise InfraError(f"{name} cannot be started: its run has ended")
            problem = f"cannot make an instance of {name} in {self._runs}"
            with disk_errors(problem), self._alone():
                if self._descriptor is None:
                    self._remove_dead()
                    self._folder.mkdir(mode=PRIVATE, exist_ok=True)
                    self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
                    fcntl.flock(self._descriptor, fcntl.LOCK_SH)
                storage = self._folder / name
                if not storage.exists():
                    self._begin(name)
                return storage

    def close(self) -> None:
        """Merge the devices' stores into the lasting ones and remove them, unless still in use."""
        with self._lock:
            self._closed = True
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError), self._alone():
            # closing alone would leave the lock to a child that another thread has just forked
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
            self._remove_dead()

    def _begin(self, name: str) -> None:
        """Create the storage of an instance, and note its initial contents for the end."""
        storage = self._folder / name
        fresh = self._folder / f".{name}"
        fresh.mkdir(mode=PRIVATE)
        (fresh / LOCK_FILE).touch()
        source, target = _store_of(self._root / name), fresh / _WORKDIR
        began_with = set()
        if _prepare_store(source, target):
            began_with = {
                content for content in _contents(source) if _link(source, target, content)
            }
        note = self._folder / f"{_BEGAN_WITH}{name}"
        note.write_text("".join(f"{name}\n" for name in sorted(began_with)))
        fresh.rename(storage)

    def _remove_dead(self) -> None:
        """End the runs that no process has locked."""
        for folder in self._runs.iterdir():
            with contextlib.suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._end(folder)
                finally:
                    os.close(descriptor)

    def _end(self, folder: Path) -> None:
        for note in folder.glob(f"{_BEGAN_WITH}*"):
            name = note.name.removeprefix(_BEGAN_WITH)
            with contextlib.suppress(OSError):
                began_with = set(note.read_text().split("\n")) - {""}
                lasting = self._root / name
                if not lasting.exists():
                    lasting.mkdir(mode=PRIVATE)
                    (lasting / LOCK_FILE).touch()
                merge_store(_store_of(folder / name), _store_of(lasting), began_with)
        shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock out other processes that begin or end instances, for milliseconds."""
        self._runs.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        descriptor = os.open(self._runs, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _store_of(storage: Path) -> Path:
    """Return the store of a device, which may have links anywhere in its storage.

    Raises NotInsideError if the store, or one of its folders, is a link; OSError.
    """
    for folder in _FOLDERS:
        with contextlib.suppress(FileNotFoundError):
            list_inside(storage, f"{_WORKDIR}/{folder}")
    return storage / _WORKDIR


def merge_store(source: Path, target: Path, began_with: set[str]) -> None:
    """Apply to the store `target` the changes of `source` since it `began_with` some contents.

    Nothing is removed while `target` is in use. Raises OSError.
    """
    if not _prepare_store(source, target):
        return
    contents, present = _contents(source), {base(name) for name in _contents(target)}
    for name in contents - began_with:
        if base(name) not in present:
            _link(source, target, name)
    if not any((target / "inuse").iterdir()):
        for name in began_with - contents:
            (target / "store" / name).unlink(missing_ok=True)


def _prepare_store(source: Path, target: Path) -> bool:
    """Create the folders of the store `target`; return False if `source` has no hard links."""
    try:
        with open_below(source, _LINKS) as stream:
            links = stream.read(_MOST_LINKS_BYTES)
    except (FileNotFoundError, NotInsideError):
        return False
    if links.strip() != b"hard":
        return False
    for folder in _FOLDERS:
        (target / folder).mkdir(parents=True, exist_ok=True)
    with create_inside(target, _LINKS, replace=True) as copy:
        copy.write(links)
    return True


def _contents(store: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return {name for name in os.listdir(store / "store") if ENTRY_FILE.fullmatch(name)}
    return set()


def _link(source: Path, target: Path, name: str) -> bool:
    """Link a content; return False if it is not a file or was removed meanwhile."""
    path = source / "store" / name
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISREG(path.lstat().st_mode):
            with contextlib.suppress(FileExistsError):
                os.link(path, target / "store" / name, follow_symlinks=False)
            return True
    return False
