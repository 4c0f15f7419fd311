"""The cost of deployment, beside adb's own push of the same files, all in one run."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbutils
import pytest

from harness.core.cache import cache_root
from harness.core.deadline import Deadline
from harness.deploy.deploy import Deployer
from harness.deploy.layout import FileSet
from harness.runtimes.catalog import Catalog
from harness.runtimes.runtime import runtime_set
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.simulator.programs import device_properties
from harness.transport.adb_address import SshAddress
from harness.transport.adb_client import SyncStream
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import adb_binary
from harness.transport.shell import Completed
from tests.integration.transport.adb.real_adbd import RealDevice

CONTEXTS = 66
CONTEXT_BYTES = 6 << 20
SMALL_FILES, SMALL_BYTES = 500, 4096
EACH = 10  # so many of the small files by adbutils' push, which takes 90 ms for one
SHELLS = 200
ROUNDS = 5
SLACK = 3  # what is asserted is looser than what is aimed at: other programs run here, too


@dataclass(frozen=True)
class Place:
    """A device, a folder on it, and that folder as this host sees it."""

    device: AdbDevice
    remote: str
    local: Path
    kind: str


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """On the real adbd where there is one, else on a simulated device."""
    keys, storage = tmp_path / "keys", tmp_path / "storage"
    root = os.environ.get("QNN_HARNESS_ADBD_ROOT")
    daemon: RealDevice | SimulatedDevice
    if root:
        remote, local = "/data/local/tmp", storage / "local/tmp"
        daemon = RealDevice(Path(root), storage=storage)
    else:
        local = storage / "data/local/tmp"
        remote = str(local)
        daemon = SimulatedDevice(
            "sim-bench",
            storage=storage,
            properties=device_properties("sim-bench", "QCS8550"),
            public_key=harness_key(keys).with_suffix(".pub"),
        )
    with PrivateAdbServer(key_folder=keys) as private, daemon:
        private.server.connect(daemon.address, deadline=Deadline(20))
        device = AdbDevice(daemon.address, private.server)
        yield Place(device, f"{remote}/bench", local / "bench", "real" if root else "simulated")
        device.shell(f"rm -rf {shlex.quote(remote)}/bench", timeout_s=60)


def timed(action: Callable[[], object]) -> float:
    start = time.monotonic()
    action()
    return time.monotonic() - start


def adb_push(device: AdbDevice, folder: Path, remote: str) -> None:
    command = [adb_binary(), "-L", device.server.address.spec, "-s", device.serial]
    subprocess.run([*command, "push", "-q", folder, remote], check=True)


def hash_and_link(device: AdbDevice, folder: str) -> None:
    """Hash and link the files that came, as a deployment does besides, by plain commands."""
    script = (
        f"cd {shlex.quote(folder)} && mkdir ../links && sha256sum * >../hashes && ln * ../links"
    )
    assert device.shell(script, timeout_s=60).exit_code == 0


def push_each(device: AdbDevice, paths: Iterable[Path], remote: str) -> None:
    """By adbutils alone, but for the address that it does not know."""

    class OverSocket(adbutils.AdbConnection):  # type: ignore[misc]  # adbutils carries no types
        def _safe_connect(self) -> socket.socket:
            return bare_connection(device)

    class Client(adbutils.AdbClient):  # type: ignore[misc]
        def make_connection(self, timeout: float | None = None) -> OverSocket:
            return OverSocket("", 0)

    sync = Client().device(device.serial).sync
    for path in paths:
        sync.push(path, f"{remote}/{path.name}")


def bare_connection(device: AdbDevice) -> socket.socket:
    address = device.server.address
    assert not isinstance(address, SshAddress)
    return address.connect(10)


class Counting(AdbDevice):
    """The device, which also counts what it was asked."""

    round_trips = 0

    def shell(self, script: str, **options: Any) -> Completed:
        self.round_trips += 1
        return super().shell(script, **options)

    def sync(self, **options: Any) -> AbstractContextManager[SyncStream]:
        self.round_trips += 1
        return super().sync(**options)


def times(place: Place, folder: Path, sets: Sequence[FileSet]) -> tuple[float, float, float]:
    """The best of some rounds: cold, warm, and adb's own push of `folder`; one round trip warm."""
    counting = Counting(place.device.serial, place.device.server)
    workdir, cold, warm, plain = f"{place.remote}/qnn-harness", [], [], []

    def deploy() -> None:
        # reading and hashing local files is the same work whoever pushes them, and is done once
        Deployer(counting, workdir).deploy_sets(sets)

    for _ in range(ROUNDS):
        plain.append(timed(lambda: adb_push(place.device, folder, f"{place.remote}/plain")))
        shutil.rmtree(place.local / "plain")
        cold.append(timed(deploy))
        for _ in range(3):
            counting.round_trips = 0
            warm.append(timed(deploy))
            assert counting.round_trips == 1
        shutil.rmtree(place.local / "qnn-harness")
    return min(cold), min(warm), min(plain)


@pytest.mark.benchmark
def test_runtime_and_contexts(
    place: Place, tmp_path: Path, show_figures: Callable[..., None]
) -> None:
    catalog = Catalog(cache_root())
    (version,) = catalog.resolve("latest", "linux-x64")
    runtime = catalog.runtime(version, "linux-x64")
    contexts = tmp_path / "all/contexts"
    contexts.mkdir(parents=True)
    for number in range(CONTEXTS):
        (contexts / f"{number}.bin").write_bytes(os.urandom(CONTEXT_BYTES))
    for file in runtime.files:
        target = tmp_path / "all/runtime" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, target)
    hashing = Deployer(place.device, place.remote)
    files = sorted(contexts.iterdir())
    sets = [hashing.file_set(path.stem, {"context.bin": path}) for path in files]
    cold, warm, plain = times(place, tmp_path / "all", [runtime_set(runtime), *sets])
    show_figures(
        f"runtime and {CONTEXTS} contexts",
        device=place.kind,
        MB=round((sum(f.size for f in runtime.files) + CONTEXTS * CONTEXT_BYTES) / 1e6),
        cold_s=f"{cold:.2f}",
        adb_push_s=f"{plain:.2f}",
        cold_to_adb_push=f"{cold / plain:.2f}",
        warm_s=f"{warm:.3f}",
        warm_to_cold=f"{warm / cold:.4f}",
    )
    # the simulated device hashes with this host's sha256sum, which may know no SHA instructions
    assert cold / plain < 1.1 * SLACK * (1 if place.kind == "real" else 2)
    assert warm / cold < 0.02 * SLACK


@pytest.mark.benchmark
def test_small_files(place: Place, tmp_path: Path, show_figures: Callable[..., None]) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    for number in range(SMALL_FILES):
        (folder / f"{number}.raw").write_bytes(os.urandom(SMALL_BYTES))
    paths = sorted(folder.iterdir())
    deployer = Deployer(place.device, place.remote).file_set(
        "small", {path.name: path for path in paths}
    )
    cold, warm, plain = times(place, folder, [deployer])
    adb_push(place.device, folder, f"{place.remote}/plain")
    same = plain + timed(lambda: hash_and_link(place.device, f"{place.remote}/plain"))
    some = timed(lambda: push_each(place.device, paths[:EACH], f"{place.remote}/each"))
    each = some / EACH * SMALL_FILES
    show_figures(
        f"{SMALL_FILES} files of {SMALL_BYTES} bytes",
        device=place.kind,
        deploy_s=f"{cold:.3f}",
        adb_push_s=f"{plain:.3f}",
        to_adb_push=f"{cold / plain:.2f}",
        to_push_hash_link=f"{cold / same:.2f}",
        adbutils_s=f"{each:.2f}",
        adbutils_to_deploy=f"{each / cold:.0f}",
        warm_s=f"{warm:.3f}",
    )
    # adb's push neither hashes nor links what it brings; nothing of a deployment has its name in
    # the store before it is whole, which is one more step on the file system for each file
    assert cold / same < 2 * SLACK
    assert each / cold > 50 / SLACK


@pytest.mark.benchmark
def test_shell_round_trip(place: Place, show_figures: Callable[..., None]) -> None:
    device = place.device
    device.shell("true", timeout_s=10)
    ours, bare = [], []
    for _ in range(SHELLS):
        ours.append(timed(lambda: device.shell("true", timeout_s=10)))
        bare.append(timed(lambda: bare_shell(device)))
    ours_ms, bare_ms = (statistics.median(all_s) * 1000 for all_s in (ours, bare))
    show_figures(
        "shell round trip",
        device=place.kind,
        ours_ms=f"{ours_ms:.2f}",
        bare_connection_ms=f"{bare_ms:.2f}",
        ratio=f"{ours_ms / bare_ms:.2f}",
    )
    assert ours_ms / bare_ms < 1.2 * SLACK


def bare_shell(device: AdbDevice) -> None:
    """`true` over a connection to the adb server with nothing around it."""
    with bare_connection(device) as bare:
        for request in (f"host:transport:{device.serial}", "shell,v2,raw:true"):
            bare.sendall(b"%04x%b" % (len(request), request.encode()))
            assert bare.recv(4, socket.MSG_WAITALL) == b"OKAY"
        while bare.recv(1 << 16):
            pass
