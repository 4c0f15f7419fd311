"""A session's side of its places: starts the keeper, and checks that the places are still held.

The keeper's folder is shared by all processes of the session. `held.json` lists its places. `lost`
has a file for each place that was lost, which says why. `alive` is locked as long as the keeper
lives.
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
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.core.bounded_json import parse_json
from harness.core.errors import ConfigError, InfraError
from harness.core.files import read_json
from harness.core.guarded_process import start_daemon
from harness.core.state_folders import cache_root


@dataclass(frozen=True)
class Service:
    """A `NetworkService` of an exporter: its address, and its name in the place."""

    name: str
    address: str
    port: int


@dataclass(frozen=True)
class Place:
    """A place of the lab; `acquired` is its holder ("host/user"), "" if it is free.

    `power_port` is the name of the resource that switches its power, "" if it has none.
    """

    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    services: Sequence[Service] = ()
    acquired: str = ""
    power_port: str = ""

    def fits(self, filters: Mapping[str, str]) -> bool:
        """Return whether a reservation with these filters may get it."""
        tags = {**self.tags, "name": self.name}
        return all(tags.get(key) == value for key, value in filters.items())


@dataclass(frozen=True)
class PlaceRequest:
    """A session's request to a lab: with 0 `places`, matching places are only listed."""

    coordinator: str
    filters: Mapping[str, str]
    places: int = 0
    wait_s: float = 0.0


def waiting_text(filters: Mapping[str, str], holders: Collection[str], wait_s: float) -> str:
    """Return the notice of a session that waits for a place."""
    tags = " ".join(f"{key}={value}" for key, value in filters.items()) or "any tags"
    held_by = f"; in use by {', '.join(sorted(set(holders)))}" if holders else ""
    return f"waiting up to {wait_s:g} s for a labgrid place with {tags}{held_by}"


_log = logging.getLogger(__name__)

VARIABLE: Final = "QNN_HARNESS_LABGRID_SESSION"
"""The environment variable that tells a session's processes the keeper's folder."""

ALIVE: Final = "alive"
OWNER: Final = "owner.json"
HELD: Final = "held.json"
LOST: Final = "lost"

_START_S: Final = 60.0
_END_S: Final = 5.0
_CLIENT_S: Final = 60.0
MAX_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class FoundPlaces:
    """Places, with the folder of the session that holds them; `user` is our name in labgrid."""

    places: Sequence[Place]
    user: str
    folder: Path | None = None


@dataclass(frozen=True)
class FoundPlace:
    """A place, with the search that found it."""

    place: Place
    search: FoundPlaces

    @property
    def name(self) -> str:
        return self.place.name

    def why_not(self) -> str | None:
        name, holder, folder = self.place.name, self.place.acquired, self.search.folder
        if folder is None:
            owner = f"it is acquired by {holder}" if holder else "it is not acquired"
            acquire = f"start a run, or use `labgrid-client -p {name} acquire`"
            is_mine = holder == self.search.user
            return None if is_mine else f"labgrid place {name} is not yours: {owner}; {acquire}"
        with contextlib.suppress(FileNotFoundError):
            return lost_file(folder, name).read_text()
        if not is_alive(folder):
            return f"this run lost the labgrid place {name}: the process that kept it ended"
        return None

    @property
    def lease_key(self) -> str | None:
        folder = self.search.folder
        return None if folder is None else lease_key(folder, self.place.name)

    @property
    def has_power_port(self) -> bool:
        return self.search.folder is not None and bool(self.place.power_port)

    def power_cycle(self) -> None:
        """Switch it off and on with labgrid's own client. Raises InfraError."""
        folder = self.search.folder
        assert folder is not None
        command = ["-p", self.place.name, "power", "--name", self.place.power_port]
        try:
            _run_client(folder, *command, "cycle")
        except InfraError:
            # it may have been left off
            with contextlib.suppress(InfraError):
                _run_client(folder, *command, "on")
            raise


def _run_client(folder: Path, *args: str) -> None:
    """Run labgrid's client under the session's name. Raises InfraError."""
    tool = "labgrid's client"
    try:
        owner = read_json(folder / OWNER, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise InfraError(f"{tool} does not start: {error}") from error
    host, _, user = owner["name"].partition("/")
    names = {"LG_HOSTNAME": host, "LG_USERNAME": user, "GRPC_VERBOSITY": "NONE"}
    command = [sys.executable, "-P", "-m", "labgrid.remote.client", "-x", owner["coordinator"]]
    start_daemon([*command, *args], title=tool, within_s=_CLIENT_S, environment=os.environ | names)


def send(**message: object) -> None:
    """Send a line of JSON from the keeper to its session."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def lost_file(folder: Path, name: str) -> Path:
    """Return the file that says why a place was lost."""
    return folder / LOST / hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def lease_key(folder: Path, name: str) -> str:
    """Return the key of a place's lease: a case has it, or the keeper while another has the place.

    It is the session's own: another session on this computer may be who has the place.
    """
    return f"labgrid {folder} {name}"


def is_alive(folder: Path) -> bool:
    """Return whether the keeper of a folder still runs."""
    try:
        with open(folder / ALIVE, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class Session:
    """The places that this process holds, until `close` or its end."""

    def __init__(self, request: PlaceRequest) -> None:
        """Wait for the places. Raises ConfigError and InfraError."""
        root = cache_root() / "labgrid"
        root.mkdir(exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(dir=root))
        (self._folder / LOST).mkdir()
        with open(self._folder / ALIVE, "wb") as lock:
            # the keeper inherits the lock, which belongs to all processes that share the open file
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._keeper = _start(request, self._folder, lock.fileno())
        try:
            answer = _answer(self._keeper, request.wait_s + _START_S)
            self.places = FoundPlaces(places_of(answer), str(answer["user"]), self._folder)
        except BaseException:
            self.close()
            raise
        os.environ[VARIABLE] = str(self._folder)

    def close(self) -> None:
        """Release the places; safe to call twice."""
        if os.environ.get(VARIABLE) == str(self._folder):
            del os.environ[VARIABLE]
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        try:
            self._keeper.wait(_END_S)
        except subprocess.TimeoutExpired:
            _log.warning("labgrid's coordinator does not answer; its places are released later")
            return
        if not (self._folder / OWNER).exists():
            shutil.rmtree(self._folder, ignore_errors=True)


def found_places(request: PlaceRequest) -> FoundPlaces:
    """Return the places of this process's session; without one, all that fit, held or not.

    Raises ConfigError where the extra is not installed or no place fits, InfraError where the
    coordinator does not answer.
    """
    folder = Path(os.environ.get(VARIABLE, ""))
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = read_json(folder / HELD, MAX_BYTES)
        if stored["wanted"] == asdict(request):
            return FoundPlaces(places_of(stored), "", folder)
    keeper = _start(PlaceRequest(request.coordinator, request.filters), Path())
    try:
        answer = _answer(keeper, _START_S)
        return FoundPlaces(places_of(answer), str(answer["user"]))
    finally:
        keeper.kill()
        keeper.wait()


def _start(request: PlaceRequest, folder: Path, *inherited: int) -> subprocess.Popen[bytes]:
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
        keeper.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
        keeper.stdin.flush()
    return keeper


def _answer(keeper: subprocess.Popen[bytes], within_s: float) -> Mapping[str, Any]:
    """Return the keeper's answer: the places it listed or acquired. Its notices are logged."""
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    output, deadline = bytearray(), time.monotonic() + within_s
    searched = 0  # there is no end of a line before this position
    while len(output) < MAX_BYTES:
        if (end := output.find(b"\n", searched)) >= 0:
            message = parse_json(bytes(output[:end]))
            del output[: end + 1]
            searched = 0
            if "wrong" in message:
                raise ConfigError(**message["wrong"])
            if "failed" in message:
                raise InfraError(message["failed"])
            if "notice" not in message:
                return dict(message)
            _log.warning(message["notice"])
            continue
        searched = len(output)
        if not select.select([keeper.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise InfraError(f"labgrid's coordinator gave no answer within {within_s:g} s")
        chunk = os.read(keeper.stdout.fileno(), 1 << 16)
        if not chunk:
            why = keeper.stderr.read(MAX_BYTES)[-2000:].decode("utf-8", "replace").strip()
            raise InfraError(
                f"the process that holds labgrid places ended: {why.rpartition(chr(10))[2]}"
            )
        output += chunk
    raise InfraError("labgrid's coordinator reports more places than a lab can have")


def places_of(message: Mapping[str, Any]) -> list[Place]:
    """Return the places in a keeper's message or file."""
    return [
        Place(**{**place, "services": tuple(Service(**service) for service in place["services"])})
        for place in message["places"]
    ]
