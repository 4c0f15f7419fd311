"""A simulated device on a private adb server, and a way to count what a deployment costs."""

import io
import os
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.simulator.boot_files import device_properties
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from harness.transport.files import PushItem
from harness.transport.shell import Completed
from tests.android.bionic import x64_root
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.integration.transport.adb.real_adbd import Android, RealDevice
from tests.needed import ANDROID


class CountingDevice(AdbDevice):
    """The real thing, which also counts: scripts run, pushes, bytes pushed."""

    def __init__(self, server: AdbServer, storage: Path, root: str, link: FaultyLink) -> None:
        super().__init__(link.address, server)
        self.storage = storage
        self.link = link
        self._root = root
        self.scripts = 0
        self.pushes = 0
        self.pushed_bytes = 0
        self.damage_next = 0
        self._counting = threading.Lock()

    @property
    def workdir(self) -> str:
        return f"{self._root}/data/local/tmp/qnn harness"

    def local(self, *parts: str) -> Path:
        """A path of the device as this host sees it."""
        return self.storage.joinpath("/".join(parts).removeprefix(f"{self._root}/"))

    def connect(self) -> None:
        """Connects anew, over a link that carries again."""
        self.link.resume()
        self.server.disconnect(self.serial)
        self.server.connect(self.serial, deadline=Deadline(60))

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
    try:
        with tarfile.open(fileobj=io.BytesIO(stdin)) as tar:
            return sum(
                member.size for member in tar if re.match(r"ready/[0-9a-f]{64}", member.name)
            )
    except tarfile.ReadError:
        return 0


@pytest.fixture(scope="session")
def key_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="session")
def adb_server(key_folder: Path) -> Iterator[AdbServer]:
    with PrivateAdbServer(key_folder=key_folder) as private:
        yield private.server


MakeDevice = Callable[..., CountingDevice]


@pytest.fixture
def make_device(adb_server: AdbServer, key_folder: Path, tmp_path: Path) -> Iterator[MakeDevice]:
    """make_device(kind="simulated", limit=None, storage="storage"): a device on a link."""
    with ExitStack() as cleanup:

        def connect(
            kind: str = "simulated", limit: int | None = None, storage: str = "storage"
        ) -> CountingDevice:
            folder = tmp_path / storage
            daemon: SimulatedDevice | RealDevice
            if kind != "simulated":
                # its /data only, but under the same name
                folder.mkdir(exist_ok=True)
                program = Path(os.environ["QNN_HARNESS_ADBD_ROOT"])
                android = Android(str(x64_root())) if kind == "android" else None
                daemon = RealDevice(program, storage=folder / "data", android=android)
            else:
                daemon = SimulatedDevice(
                    "sim-deploy",
                    storage=folder,
                    properties=device_properties("sim-deploy", "QCS8550"),
                    public_key=harness_key(key_folder).with_suffix(".pub"),
                    storage_limit_bytes=limit,
                )
            cleanup.enter_context(daemon)
            link = cleanup.enter_context(FaultyLink(daemon.address))
            adb_server.connect(link.address, deadline=Deadline(60))
            cleanup.callback(adb_server.disconnect, link.address)
            root = str(folder) if kind == "simulated" else ""
            return CountingDevice(adb_server, folder, root, link)

        yield connect


REAL = pytest.param("real", marks=pytest.mark.needs("QNN_HARNESS_ADBD_ROOT"))
ON_ANDROID = pytest.param(
    "android",
    marks=[
        pytest.mark.needs("QNN_HARNESS_ADBD_ROOT"),
        pytest.mark.needs(ANDROID),
        pytest.mark.nightly,
    ],
)


@pytest.fixture(params=["simulated", REAL, ON_ANDROID])
def device(request: pytest.FixtureRequest, make_device: MakeDevice) -> CountingDevice:
    return make_device(request.param)
