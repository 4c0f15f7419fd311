"""An adb server of our own and devices on it: simulated and real adbd, with adb 36 and adb 29.

QNN_HARNESS_ADBD_ROOT names a root with the real adbd, QNN_HARNESS_ADB29 the adb program that
Debian 12 packages; real_adb.sh makes both. The tests that want them are left out, and named at the
end, where they are not set.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice
from harness.adb.key import harness_key
from harness.adb.server import AdbServer, PrivateAdbServer
from harness.simulator.device import SimulatedDevice
from tests.integration.adb.faulty_link import FaultyLink
from tests.integration.adb.real_adbd import RealDevice

REAL = pytest.mark.needs("QNN_HARNESS_ADBD_ROOT")
OLD_ADB = pytest.mark.needs("QNN_HARNESS_ADB29")
LABS = [
    pytest.param(("simulated", 36), id="simulated"),
    pytest.param(("simulated", 29), id="simulated-adb29", marks=[OLD_ADB]),
    pytest.param(("real", 36), id="real", marks=[REAL]),
    pytest.param(("real", 29), id="real-adb29", marks=[REAL, OLD_ADB]),
]
CONNECT_S = 15.0


def old_adb() -> Path:
    return Path(os.environ["QNN_HARNESS_ADB29"])


class Daemon(Protocol):
    address: str

    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass
class Lab:
    """Starts devices of one kind; each has a folder on it where a test may write."""

    kind: str
    adb: Path | None
    server: AdbServer
    home: Path
    cleanup: contextlib.ExitStack

    def start(self, **options: Any) -> tuple[Daemon, str]:
        """A started daemon and a fresh folder on that device; options are its daemon's."""
        if self.kind == "real":
            root = Path(os.environ["QNN_HARNESS_ADBD_ROOT"])
            daemon: Daemon = RealDevice(root, **options)
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

    def connect(self, address: str, features: frozenset[str] | None = None) -> AdbDevice:
        self.server.connect(address, deadline=Deadline(CONNECT_S))
        return AdbDevice(address, self.server, features=features)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HOME of our adb server, with its key."""
    return tmp_path_factory.mktemp("adb-home")


@pytest.fixture(scope="session")
def adb_server(home: Path) -> Iterator[AdbServer]:
    with PrivateAdbServer(key_folder=home) as private:
        yield private.server


@pytest.fixture(scope="session")
def old_adb_server(home: Path) -> Iterator[AdbServer]:
    with PrivateAdbServer(key_folder=home, adb=old_adb()) as private:
        yield private.server


@pytest.fixture(scope="session", params=LABS)
def lab(request: pytest.FixtureRequest, home: Path) -> Iterator[Lab]:
    kind, version = request.param
    server = request.getfixturevalue("adb_server" if version == 36 else "old_adb_server")
    with contextlib.ExitStack() as cleanup:
        yield Lab(kind, None if version == 36 else old_adb(), server, home, cleanup)


@dataclass
class Place:
    """A connected device and a folder on it that is removed afterwards."""

    device: AdbDevice
    folder: str


@pytest.fixture(scope="session")
def shared(lab: Lab) -> Iterator[Place]:
    """One device for all tests that leave it as it was."""
    daemon, folder = lab.start()
    device = lab.connect(daemon.address)
    yield Place(device, folder)
    device.shell(f"rm -rf {shlex.quote(folder)}", timeout_s=20)
    daemon.stop()


@pytest.fixture
def device(shared: Place) -> AdbDevice:
    return shared.device


@pytest.fixture
def folder(shared: Place) -> str:
    """A folder on the device; the first push into it makes it."""
    return f"{shared.folder}/{secrets.token_hex(4)}"


@pytest.fixture(params=["newest", "oldest"])
def any_device(request: pytest.FixtureRequest, shared: Place) -> AdbDevice:
    """The device as it is, and as if its daemon knew no features."""
    if request.param == "newest":
        return shared.device
    return AdbDevice(shared.device.serial, shared.device.server, features=frozenset())


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
        assert "shell_v2" in device.features
        yield Linked(link, device, folder)
        lab.server.disconnect(link.address)


@pytest.fixture
def linked(lab: Lab, shared: Place, folder: str) -> Iterator[Linked]:
    with linked_to(lab, shared.device.serial, folder) as linked:
        yield linked
