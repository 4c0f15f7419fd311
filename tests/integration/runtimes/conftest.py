"""A simulated device on a private adb server, and a way to count what a deployment costs."""

from __future__ import annotations

import io
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice, Completed, PushItem
from harness.adb.key import harness_key
from harness.adb.server import AdbServer, PrivateAdbServer
from harness.simulator.device import SimulatedDevice
from harness.simulator.properties import device_properties


class CountingDevice(AdbDevice):
    """The real thing, which also counts: scripts run, pushes, bytes pushed."""

    def __init__(self, serial: str, server: AdbServer, storage: Path) -> None:
        super().__init__(serial, server)
        self.storage = storage
        self.scripts = 0
        self.pushes = 0
        self.pushed_bytes = 0
        self.damage_next = 0
        self._counting = threading.Lock()

    @property
    def workdir(self) -> str:
        return str(self.storage / "data/local/tmp/qnn harness")

    def reset(self) -> None:
        self.scripts = self.pushes = self.pushed_bytes = 0

    def shell(self, script: str, **options: object) -> Completed:
        self.scripts += 1
        packed = packed_bytes(options.get("stdin", b""))
        with self._counting:  # scripts run while files are pushed
            self.pushed_bytes += packed
        return super().shell(script, **options)  # type: ignore[arg-type]

    def push(self, files: object, **options: object) -> None:
        items: list[PushItem] = list(files)  # type: ignore[call-overload]
        self.pushes += 1
        for item in items:
            content = item.source
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            with self._counting:
                self.pushed_bytes += size
        if self.damage_next:
            self.damage_next -= 1
            content = items[0].source
            content = content if isinstance(content, bytes) else content.read_bytes()
            items[0] = replace(items[0], source=b"?" + content[1:])
        super().push(items, **options)  # type: ignore[arg-type]


def packed_bytes(stdin: object) -> int:
    """The size of the contents (not of notes to the script) in an archive, if it is one."""
    assert isinstance(stdin, bytes)
    try:
        with tarfile.open(fileobj=io.BytesIO(stdin)) as tar:
            return sum(one.size for one in tar if re.match(r"ready/[0-9a-f]{64}", one.name))
    except tarfile.ReadError:
        return 0


@pytest.fixture(scope="session")
def key_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="session")
def adb_server(key_folder: Path) -> Iterator[AdbServer]:
    with PrivateAdbServer(key_folder=key_folder) as private:
        yield private.server


@pytest.fixture
def make_device(
    adb_server: AdbServer, key_folder: Path, tmp_path: Path
) -> Iterator[Callable[..., CountingDevice]]:
    with ExitStack() as cleanup:

        def make(storage_limit_bytes: int | None = None) -> CountingDevice:
            storage = tmp_path / "storage"
            simulated = cleanup.enter_context(
                SimulatedDevice(
                    "sim-deploy",
                    storage=storage,
                    properties=device_properties("sim-deploy", "QCS8550"),
                    public_key=harness_key(key_folder).with_suffix(".pub"),
                    storage_limit_bytes=storage_limit_bytes,
                )
            )
            adb_server.connect(simulated.address, deadline=Deadline(20))
            return CountingDevice(simulated.address, adb_server, storage)

        yield make


@pytest.fixture
def device(make_device: Callable[..., CountingDevice]) -> CountingDevice:
    return make_device()
