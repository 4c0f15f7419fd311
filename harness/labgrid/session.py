"""A session's side of its places: starts the keeper, and sees whether a place is still its own.

The keeper's folder is shared by all processes of the session. `held.json` has its places. `lost`
has a file for each that was taken away, with a line that says so, a line for its return, and so on.
`alive` is locked as long as the keeper lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.core.bounded_json import parse_json
from harness.core.cache import cache_root
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, InfraError
from harness.core.guard import run_outliving
from harness.core.whole_file import read_json


@dataclass(frozen=True)
class Service:
    """A `NetworkService` of an exporter: where something listens, and what the place calls it."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class Place:
    """A place of the lab; `acquired` is who has it ("host/user"), "" if nobody has.

    `power_port` is what it calls the resource that switches its power, "" if it has none.
    """

    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    services: Sequence[Service] = ()
    acquired: str = ""
    power_port: str = ""

    def fits(self, filters: Mapping[str, str]) -> bool:
        """Whether a reservation with these filters may be given it."""
        has = {**self.tags, "name": self.name}
        return all(has.get(key) == value for key, value in filters.items())


@dataclass(frozen=True)
class PlaceRequest:
    """What a session asks of a lab: none of its `places` means that they are only listed."""

    coordinator: str
    filters: Mapping[str, str]
    places: int = 0
    wait_s: float = 0.0


def waiting_text(filters: Mapping[str, str], holders: Collection[str], wait_s: float) -> str:
    """Return the notice for somebody who waits for a place."""
    asked = " ".join(f"{key}={value}" for key, value in filters.items()) or "any tags"
    who = f"; they are held by {', '.join(sorted(set(holders)))}" if holders else ""
    return f"waiting up to {wait_s:g} s for a place of labgrid with {asked}{who}"


def no_place(wanted: PlaceRequest, places: Sequence[Place]) -> str:
    """Why no place fits, with the tags that there are."""
    asked = " ".join(f"{key}={value}" for key, value in wanted.filters.items())
    if not places:
        return f"the coordinator at {wanted.coordinator} has no places"
    return f"no place of the coordinator at {wanted.coordinator} has {asked}"


def tags_there(places: Iterable[Place]) -> list[str]:
    """All tags that places have, as they are written in a filter."""
    return sorted({f"{key}={value}" for place in places for key, value in place.tags.items()})


_log = logging.getLogger(__name__)

VARIABLE: Final = "QNN_HARNESS_LABGRID_SESSION"
"""In the environment of a session's processes: the keeper's folder."""

ALIVE: Final = "alive"
OWNER: Final = "owner.json"
HELD: Final = "held.json"
LOST: Final = "lost"

_START_S: Final = 60.0
_END_S: Final = 5.0
_LOOK_S: Final = 0.1
_PAUSE_S: Final = 5.0
_REPLACED_S: Final = 15.0
"""So long a keeper that died is replaced in."""
_CLIENT_S: Final = 60.0
MAX_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class FoundPlaces:
    """Places, and whether they are this session's; `user` is what labgrid calls who looked."""

    places: Sequence[Place]
    user: str
    folder: Path | None = None


@dataclass(frozen=True)
class FoundPlace:
    """One of the places that were found."""

    place: Place
    found: FoundPlaces

    def why_not(self) -> str | None:
        """Why it must not be used, None if it may be."""
        name, holder, folder = self.place.name, self.place.acquired, self.found.folder
        if folder is None:
            who = f"it is held by {holder}" if holder else "nobody holds it"
            acquire = f"a run takes it, and so does `labgrid-client -p {name} acquire`"
            mine = holder == self.found.user
            return None if mine else f"place {name} of labgrid is not yours: {who}; {acquire}"
        if (lines := self.changes()) and len(lines) % 2:
            return lines[-1]
        replaced = Deadline(_REPLACED_S)
        while not is_alive(folder) and folder.exists() and not replaced.expired:
            time.sleep(_LOOK_S)
        if not is_alive(folder):
            return f"nobody keeps place {name} of labgrid for this run any more: its keeper ended"
        return None

    def changes(self) -> list[str]:
        """What became of it since the session has it: lost, had again, and so on."""
        return [] if self.found.folder is None else changes(self.found.folder, self.place.name)

    @property
    def has_power_port(self) -> bool:
        return self.found.folder is not None and bool(self.place.power_port)

    def power_cycle(self) -> None:
        """Switches it off and on, by labgrid's own client. Raises InfraError."""
        folder = self.found.folder
        assert folder is not None
        command = ["-p", self.place.name, "power", "--name", self.place.power_port]
        try:
            _run_client(folder, *command, "cycle")
        except InfraError:
            # it may be off by now
            with contextlib.suppress(InfraError):
                _run_client(folder, *command, "on")
            raise


def _run_client(folder: Path, *words: str) -> None:
    """Runs labgrid's client as the session. Raises InfraError."""
    what = "labgrid's client"
    try:
        owner = read_json(folder / OWNER, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise InfraError(f"{what} does not start: {error}") from error
    host, _, user = owner["name"].partition("/")
    names = {"LG_HOSTNAME": host, "LG_USERNAME": user, "GRPC_VERBOSITY": "NONE"}
    command = [sys.executable, "-P", "-m", "labgrid.remote.client", "-x", owner["coordinator"]]
    run_outliving(
        [*command, *words], title=what, within_s=_CLIENT_S, environment=os.environ | names
    )


def tell(**what: object) -> None:
    """A line from the keeper to its session."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def lost_file(folder: Path, name: str) -> Path:
    """The file that says why a place was lost, and whether it is back."""
    return folder / LOST / hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def changes(folder: Path, name: str) -> list[str]:
    """What became of a place since the session has it."""
    with contextlib.suppress(OSError):
        return lost_file(folder, name).read_text().splitlines()
    return []


def is_alive(folder: Path) -> bool:
    """Whether the keeper that has a folder still runs."""
    try:
        with open(folder / ALIVE, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class Session:
    """The places that this process took, until `close` or its end."""

    def __init__(self, wanted: PlaceRequest) -> None:
        """Waits for its places. Raises ConfigError and InfraError."""
        self._wanted = wanted
        self._ends = threading.Event()
        self._starting = threading.Lock()
        root = cache_root() / "labgrid"
        root.mkdir(exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(dir=root))
        (self._folder / LOST).mkdir()
        self._keeper = self._start_keeper()
        try:
            told = _answer(self._keeper, wanted.wait_s + _START_S)
            self.found = FoundPlaces(places_of(told), str(told["user"]), self._folder)
        except BaseException:
            self.close()
            raise
        os.environ[VARIABLE] = str(self._folder)
        threading.Thread(target=self._replace, name="labgrid", daemon=True).start()

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        with open(self._folder / ALIVE, "wb") as lock:
            # the keeper's from its start on, since a lock belongs to all who share the open file
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _start(self._wanted, self._folder, lock.fileno())

    def _replace(self) -> None:
        """Has another keeper go on whenever one dies, until `close`."""
        while True:
            self._keeper.wait()
            with self._starting, contextlib.suppress(OSError):
                if self._ends.is_set():
                    return
                _log.warning("what kept places of labgrid ended; another process goes on with it")
                self._keeper = self._start_keeper()
            self._ends.wait(_PAUSE_S)

    def close(self) -> None:
        """Gives the places back; safe to call twice."""
        if os.environ.get(VARIABLE) == str(self._folder):
            del os.environ[VARIABLE]
        with self._starting:
            self._ends.set()
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        try:
            self._keeper.wait(_END_S)
        except subprocess.TimeoutExpired:
            _log.warning("labgrid's coordinator does not answer; its places are given back later")
            return
        if not (self._folder / OWNER).exists():
            shutil.rmtree(self._folder, ignore_errors=True)


def found_places(wanted: PlaceRequest) -> FoundPlaces:
    """The places of the session that this process belongs to, else all that fit, as they are.

    Raises ConfigError where the extra is not installed or no place fits, InfraError where the
    coordinator does not answer.
    """
    folder = Path(os.environ.get(VARIABLE, ""))
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        held = read_json(folder / HELD, MAX_BYTES)
        if held["wanted"] == asdict(wanted):
            return FoundPlaces(places_of(held), "", folder)
    keeper = _start(PlaceRequest(wanted.coordinator, wanted.filters), Path())
    try:
        told = _answer(keeper, _START_S)
        return FoundPlaces(places_of(told), str(told["user"]))
    finally:
        keeper.kill()
        keeper.wait()


def _start(wanted: PlaceRequest, folder: Path, *inherited: int) -> subprocess.Popen[bytes]:
    keeper = subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.labgrid", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is not for it
        pass_fds=inherited,
        env=os.environ | {"GRPC_VERBOSITY": "NONE"},
    )
    assert keeper.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        keeper.stdin.write(json.dumps(asdict(wanted)).encode() + b"\n")
        keeper.stdin.flush()
    return keeper


def _answer(keeper: subprocess.Popen[bytes], within_s: float) -> Mapping[str, Any]:
    """What the keeper has found or taken; what it says before is passed on."""
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    said, until = bytearray(), time.monotonic() + within_s
    seen = 0  # so far there is no end of a line
    while len(said) < MAX_BYTES:
        if (end := said.find(b"\n", seen)) >= 0:
            told = parse_json(bytes(said[:end]))
            del said[: end + 1]
            seen = 0
            if "wrong" in told:
                raise ConfigError(**told["wrong"])
            if "failed" in told:
                raise InfraError(told["failed"])
            if "notice" not in told:
                return dict(told)
            _log.warning(told["notice"])
            continue
        seen = len(said)
        if not select.select([keeper.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            raise InfraError(f"labgrid's coordinator gave no answer within {within_s:g} s")
        more = os.read(keeper.stdout.fileno(), 1 << 16)
        if not more:
            why = keeper.stderr.read(MAX_BYTES)[-2000:].decode("utf-8", "replace").strip()
            raise InfraError(f"what keeps places of labgrid ended: {why.rpartition(chr(10))[2]}")
        said += more
    raise InfraError("labgrid's coordinator says more than a lab can be")


def places_of(told: Mapping[str, Any]) -> list[Place]:
    """The places that a keeper told of, or has written down."""
    return [
        Place(**{**one, "services": tuple(Service(**service) for service in one["services"])})
        for one in told["places"]
    ]
