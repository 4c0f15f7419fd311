"""An adb server of our own and devices on it: simulated and real adbd, with adb 36 and adb 29.

QNN_HARNESS_ADBD_ROOT names a root with the real adbd, QNN_HARNESS_ADB29 the adb program that
Debian 12 packages; real_adb.sh makes both. The tests that want them are left out, and named at the
end, where they are not set.
"""

import contextlib
import os
import secrets
import shlex
import signal
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from harness.core.deadline import Deadline
from harness.core.state_folders import cache_root
from harness.probe.build import ProbeBuilder
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from harness.transport.files import PushItem
from tests.android.bionic import android_probe, x64_root
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.integration.transport.adb.real_adbd import Android, RealDevice
from tests.needed import ANDROID, C_COMPILERS, need

REAL = pytest.mark.needs("QNN_HARNESS_ADBD_ROOT")
NEEDS_ANDROID = pytest.mark.needs(ANDROID)
OLD_ADB = pytest.mark.needs("QNN_HARNESS_ADB29")
SIMULATED = pytest.param(("simulated", 36), id="simulated")
REAL_ADBD = pytest.param(("real", 36), id="real", marks=[REAL])
REAL_ADBD_29 = pytest.param(("real", 29), id="real-adb29", marks=[REAL, OLD_ADB])
ANDROID_ADBD = pytest.param(("android", 36), id="android", marks=[REAL, NEEDS_ANDROID])
"""The real adbd on Android's shell, programs and C library, for the user 2000."""
REAL_BY_NIGHT = pytest.param(*REAL_ADBD.values, id="real", marks=[REAL, pytest.mark.nightly])
# Each daemon and each adb has its turn by day; the other two pairs have theirs by night.
LABS = [
    SIMULATED,
    pytest.param(("simulated", 29), id="simulated-adb29", marks=[OLD_ADB, pytest.mark.nightly]),
    REAL_BY_NIGHT,
    REAL_ADBD_29,
    ANDROID_ADBD,
]
ANDROID_BY_NIGHT = pytest.param(
    *ANDROID_ADBD.values, id="android", marks=[*ANDROID_ADBD.marks, pytest.mark.nightly]
)
SIMULATED_BY_NIGHT = pytest.param(*SIMULATED.values, id="simulated", marks=pytest.mark.nightly)
REAL_BY_DAY = pytest.mark.parametrize(
    "lab", [SIMULATED_BY_NIGHT, REAL_ADBD], indirect=True, scope="session"
)
"""For slow tests of the same: on the simulated device by night."""
NEWEST_SERVER = pytest.mark.parametrize(
    "lab", [SIMULATED, REAL_BY_NIGHT, ANDROID_ADBD], indirect=True, scope="session"
)
"""For tests of what stands above the transport: the server's version makes no difference there."""
CONNECT_S = 15.0
CRASHES = {128 + number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)}


class SteadyServer:
    """An adb server that many tests share, started anew whenever it has ended.

    adb 29 can crash by itself when connections break: a use after free in its
    `local_socket_event_func`. That is no fault of the harness, which reports the device as lost;
    but the tests behind it need a server.
    """

    def __init__(self, home: Path, adb: Path | None = None) -> None:
        self._home = home
        self.adb = adb
        self._private: PrivateAdbServer | None = None
        self.ends: list[int] = []

    @property
    def server(self) -> AdbServer:
        """The running server; another one, on another port, if the last one has ended."""
        self.look()
        if self._private is None:
            private = PrivateAdbServer(key_folder=self._home, adb=self.adb)
            private.start()
            self._private = private
        return self._private.server

    def look(self) -> None:
        """Notes in `ends` how the server ended, if it has."""
        private = self._private
        if private is None or private.server.is_running():
            return
        deadline = Deadline(CONNECT_S)  # a crash takes as long as its core takes to be written
        while private.exit_code is None and not deadline.expired:
            time.sleep(0.02)
        code = private.exit_code
        self.stop()
        self.ends.append(128 + signal.SIGKILL if code is None else code)

    def stop(self) -> None:
        private, self._private = self._private, None
        if private is not None:
            private.stop()


OLD_SERVERS = pytest.StashKey[SteadyServer]()


def old_adb() -> Path:
    return Path(os.environ["QNN_HARNESS_ADB29"])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test once more if adb 29 itself crashed under it, which is not what is tested."""
    if not isinstance(item, pytest.Function) or "lab" not in item.fixturenames:
        return None
    location = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**location)
    crashes = _old_crashes(item.config)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed for report in reports) and _old_crashes(item.config) > crashes:
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(**location)
    return True


def _old_crashes(config: pytest.Config) -> int:
    """Return the number of crashes of the shared adb 29 so far."""
    servers = config.stash.get(OLD_SERVERS, None)
    if servers is None:
        return 0
    servers.look()
    return sum(code in CRASHES for code in servers.ends)


@pytest.fixture(autouse=True)
def server_survives(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test under which the shared adb server ended says so, whatever else it says."""
    if "lab" not in request.fixturenames:
        yield
        return
    servers = request.getfixturevalue("lab").servers
    before = len(servers.ends)
    yield
    servers.look()
    ends = servers.ends[before:]
    # a crash of adb 29 that the test has survived is no failure
    if [code for code in ends if servers.adb is None or code not in CRASHES]:
        pytest.fail(f"the shared adb server ended with {ends}", pytrace=False)
    if ends:
        warnings.warn(f"adb 29 ended with {ends}", stacklevel=1)


@dataclass
class Lab:
    """Starts devices of one kind; each has a folder on it where a test may write."""

    kind: str
    servers: SteadyServer
    home: Path
    cleanup: contextlib.ExitStack

    @property
    def server(self) -> AdbServer:
        """The adb server that devices are connected to now."""
        return self.servers.server

    @property
    def adb(self) -> Path | None:
        """The program of that server, None for the harness's own."""
        return self.servers.adb

    def start(self, **options: Any) -> tuple[RealDevice | SimulatedDevice, str]:
        """A started daemon and a fresh folder on that device; options are its daemon's."""
        if self.kind in ("real", "android"):
            if self.kind == "android":
                options["android"] = Android(str(x64_root()), str(options.pop("programs", "")))
            root = Path(os.environ["QNN_HARNESS_ADBD_ROOT"])
            daemon: RealDevice | SimulatedDevice = RealDevice(root, **options)
            folder = f"/data/local/tmp/test-{secrets.token_hex(4)}"
        else:
            storage = self.home / f"storage-{secrets.token_hex(4)}"
            options.setdefault("public_key", harness_key(self.home).with_suffix(".pub"))
            properties = {"ro.product.model": "Test", "ro.soc.model": "QCS8550"}
            daemon = SimulatedDevice("sim-test", storage=storage, properties=properties, **options)
            folder = f"{storage}/data/local/tmp/test-{secrets.token_hex(4)}"
        self.cleanup.callback(daemon.stop)
        daemon.start()
        return daemon, folder

    def connect(self, address: str) -> AdbDevice:
        self.server.connect(address, deadline=Deadline(CONNECT_S))
        return AdbDevice(address, self.server)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HOME of our adb server, with its key."""
    return tmp_path_factory.mktemp("adb-home")


@pytest.fixture(scope="session")
def new_servers(home: Path) -> Iterator[SteadyServer]:
    steady = SteadyServer(home)
    yield steady
    steady.stop()


@pytest.fixture(scope="session")
def old_servers(request: pytest.FixtureRequest, home: Path) -> Iterator[SteadyServer]:
    steady = SteadyServer(home, old_adb())
    request.config.stash[OLD_SERVERS] = steady
    yield steady
    steady.stop()


@pytest.fixture
def adb_server(new_servers: SteadyServer) -> AdbServer:
    return new_servers.server


@pytest.fixture(scope="session", params=LABS)
def lab(request: pytest.FixtureRequest, home: Path) -> Iterator[Lab]:
    kind, version = request.param
    servers = request.getfixturevalue("new_servers" if version == 36 else "old_servers")
    with contextlib.ExitStack() as cleanup:
        yield Lab(kind, servers, home, cleanup)


@dataclass
class Place:
    """A connected device and a folder on it that is removed afterwards."""

    device: AdbDevice
    folder: str


@pytest.fixture(scope="session")
def shared_daemon(lab: Lab) -> Iterator[tuple[str, str]]:
    """Address of, and a folder on, one device for all tests that leave it as it was."""
    daemon, folder = lab.start()
    yield daemon.address, folder
    lab.connect(daemon.address).shell(f"rm -rf {shlex.quote(folder)}", timeout_s=60)
    daemon.stop()


@pytest.fixture
def shared(lab: Lab, shared_daemon: tuple[str, str]) -> Place:
    """That device, connected to the server there is now."""
    address, folder = shared_daemon
    return Place(lab.connect(address), folder)


@pytest.fixture
def device(shared: Place) -> AdbDevice:
    return shared.device


@pytest.fixture
def folder(shared: Place) -> str:
    """A folder on the device; the first push into it makes it."""
    return f"{shared.folder}/{secrets.token_hex(4)}"


@pytest.fixture
def any_device(shared: Place) -> AdbDevice:
    """The device; tests of other transports have theirs of this name."""
    return shared.device


@pytest.fixture
def caller(device: AdbDevice) -> str:
    """Lines of a program that make the same device."""
    return (
        "from harness.transport.adb_address import UnixAddress\n"
        "from harness.transport.adb_device import AdbDevice\n"
        "from harness.transport.adb_server import AdbServer\n"
        f"device = AdbDevice({device.serial!r}, AdbServer({device.server.address!r}))"
    )


@pytest.fixture(scope="module")
def probe_folder(
    lab: Lab, shared_daemon: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """A folder on the device with the probe in it."""
    if lab.kind == "android":
        probe = android_probe(tmp_path_factory.mktemp("android"))
    else:
        need(*C_COMPILERS)
        probe = ProbeBuilder(cache_root() / "probe").build()
    address, top = shared_daemon
    folder = f"{top}/probe"
    lab.connect(address).push([PushItem(probe, f"{folder}/qnn-probe", 0o755)], timeout_s=60)
    return folder


@dataclass
class Linked:
    """A device reached over a link that can break."""

    link: FaultyLink
    device: AdbDevice
    folder: str


@contextlib.contextmanager
def linked_to(lab: Lab, address: str, folder: str) -> Iterator[Linked]:
    """A link of its own to a daemon, connected under the link's address."""
    with FaultyLink(address) as link:
        device = lab.connect(link.address)
        device.shell("true", timeout_s=CONNECT_S)
        yield Linked(link, device, folder)
        lab.server.disconnect(link.address)


@pytest.fixture
def linked(lab: Lab, shared: Place, folder: str) -> Iterator[Linked]:
    with linked_to(lab, shared.device.serial, folder) as linked:
        yield linked
