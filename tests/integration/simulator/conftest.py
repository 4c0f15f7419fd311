"""A real adb server (36, of the adbutils wheel) on a port of its own, and devices on it."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.simulator.boot_files import device_properties
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import harness_key
from harness.transport.adb_server import adb_binary
from tests.faults.breakable import KeptServer
from tests.waiting import wait_for

DEADLINE_S = 20.0


def receive(connection: socket.socket, count: int) -> bytes:
    """Exactly so many bytes, fewer only at the end of the connection.

    MSG_WAITALL would not do: a socket with a timeout is non-blocking underneath.
    """
    data = b""
    while len(data) < count and (piece := connection.recv(count - len(data))):
        data += piece
    return data


@dataclass
class AdbClient:
    """The adb command line, its HOME and its server."""

    home: Path
    port: int

    @property
    def public_key(self) -> Path:
        return harness_key(self.home).with_suffix(".pub")

    def __call__(
        self, *arguments: object, serial: str | None = None, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        chosen = [] if serial is None else ["-s", serial]
        return subprocess.run(
            [adb_binary(), *chosen, *map(str, arguments)],
            env={
                "HOME": str(self.home),
                "PATH": os.defpath,
                "ANDROID_ADB_SERVER_PORT": str(self.port),
            },
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def state(self, serial: str) -> str | None:
        lines = self("devices").stdout.decode().splitlines()[1:]
        return dict(line.split("\t") for line in lines if "\t" in line).get(serial)

    def connect(self, serial: str) -> None:
        def ready() -> bool:
            self("connect", serial)
            return self.state(serial) == "device"

        wait_for(ready, f"{serial} is connected")

    def open(self, serial: str, service: str) -> socket.socket:
        """A service of the device over the server's own protocol."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)
        for request in (f"host:transport:{serial}", service):
            connection.sendall(f"{len(request.encode()):04x}{request}".encode())
            answer = receive(connection, 4)
            if answer != b"OKAY":
                connection.close()
                raise ConnectionError(f"{request}: {answer!r}")
        return connection


def running_server(home: Path) -> Iterator[AdbClient]:
    server = KeptServer(home)
    server.start()
    yield AdbClient(home, server.port)
    server.stop()


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbClient]:
    """The server whose key the devices accept."""
    yield from running_server(tmp_path_factory.mktemp("adb"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbClient]:
    """A server with a key that no device knows."""
    yield from running_server(tmp_path_factory.mktemp("stranger"))


def simulated(adb: AdbClient, name: str, **settings: Any) -> SimulatedDevice:
    properties = device_properties(name, "QCS8550", root=os.getuid() == 0)
    return SimulatedDevice(name, properties=properties, public_key=adb.public_key, **settings)


StartDevice = Callable[..., SimulatedDevice]


@pytest.fixture
def start_device(adb: AdbClient, tmp_path: Path) -> Iterator[StartDevice]:
    """Starts and connects devices, each with a storage of its own unless one is given."""
    with ExitStack() as stack:

        def start(name: str = "sim-test", **settings: Any) -> SimulatedDevice:
            settings.setdefault("storage", tmp_path / f"storage-{name}")
            device = stack.enter_context(simulated(adb, name, **settings))
            adb.connect(device.address)
            stack.callback(adb, "disconnect", device.address)
            return device

        yield start


@pytest.fixture(scope="session")
def shared_device(
    adb: AdbClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimulatedDevice]:
    """One device for all tests that do not change it."""
    storage = tmp_path_factory.mktemp("shared") / "storage"
    with simulated(adb, "sim-shared", storage=storage) as device:
        adb.connect(device.address)
        yield device


@dataclass
class OnDevice:
    """adb commands for one device."""

    adb: AdbClient
    device: SimulatedDevice

    def __call__(
        self, *arguments: object, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        return self.adb(*arguments, serial=self.device.address, stdin=stdin)

    def text(self, command: str) -> str:
        completed = self("shell", command)
        assert completed.returncode == 0, completed.stderr.decode()
        return completed.stdout.decode().strip()

    @property
    def storage(self) -> Path:
        return self.device.storage


@pytest.fixture
def shared(adb: AdbClient, shared_device: SimulatedDevice) -> OnDevice:
    return OnDevice(adb, shared_device)


def processes_of(storage: Path) -> list[int]:
    """Every process that is the daemon of this storage or one of its commands."""
    pids = []
    marks = [f'"storage": "{storage}"'.encode(), f"\0HOME={storage}\0".encode()]
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "cmdline").read_bytes() + b"\0" + (folder / "environ").read_bytes()
            except OSError:
                continue
            if any(mark in text for mark in marks):
                pids.append(int(folder.name))
    return pids


def run_python(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A Python process of its own that runs `code` and can be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
