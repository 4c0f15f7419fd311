"""What deployment costs, beside adb's own push of the same files, all in one run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import adbutils
import pytest

from harness.adb.binary import adb_binary
from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice
from harness.adb.key import harness_key
from harness.adb.server import PrivateAdbServer
from harness.cache import cache_root
from harness.runtimes.catalog import Catalog
from harness.runtimes.deploy import Deployer, DeployFile
from harness.simulator.device import SimulatedDevice
from harness.simulator.properties import device_properties
from tests.integration.adb.real_adbd import RealDevice

CONTEXTS = 66
CONTEXT_BYTES = 6 << 20
SMALL_FILES, SMALL_BYTES = 500, 4096
ROUNDS = 3


@dataclass(frozen=True)
class Place:
    """A device, a folder on it, and that folder as this host sees it."""

    device: AdbDevice
    remote: str
    local: Path


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
        yield Place(device, f"{remote}/bench", local / "bench")
        device.shell(f"rm -rf {shlex.quote(remote)}/bench", timeout_s=60)


def timed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def adb_push(device: AdbDevice, folder: Path, remote: str) -> None:
    command = [adb_binary(), "-P", str(device.server.port), "-s", device.serial]
    subprocess.run([*command, "push", folder, remote], check=True, stdout=subprocess.DEVNULL)


def push_each(device: AdbDevice, folder: Path, remote: str) -> None:
    client = adbutils.AdbClient(host=device.server.host, port=device.server.port)
    sync = client.device(device.serial).sync
    for path in folder.iterdir():
        sync.push(path, f"{remote}/{path.name}")


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
    device, remote = place.device, place.remote
    workdir = f"{remote}/qnn-harness"
    cold, warm, plain = [], [], []

    def deploy(deployer: Deployer) -> None:
        deployer.deploy_runtime(runtime)
        deployer.deploy_sets(sets)

    # reading and hashing local files is the same work, whoever pushes them
    deployer = Deployer(device, workdir)
    files = sorted(contexts.iterdir())
    sets = [deployer.file_set(path.stem, [DeployFile(path, "context.bin")]) for path in files]
    for _ in range(ROUNDS):
        plain.append(timed(lambda: adb_push(device, tmp_path / "all", f"{remote}/plain")))
        shutil.rmtree(place.local / "plain")
        cold.append(timed(lambda: deploy(Deployer(device, workdir))))
        warm += [timed(lambda: deploy(Deployer(device, workdir))) for _ in range(3)]
        shutil.rmtree(place.local / "qnn-harness")
    show_figures(
        f"runtime and {CONTEXTS} contexts",
        MB=round((sum(f.size for f in runtime.files) + CONTEXTS * CONTEXT_BYTES) / 1e6),
        cold_s=f"{min(cold):.2f}",
        adb_push_s=f"{min(plain):.2f}",
        cold_to_adb_push=f"{min(cold) / min(plain):.2f}",
        warm_s=f"{min(warm):.3f}",
        warm_to_cold=f"{min(warm) / min(cold):.3f}",
    )
    assert min(cold) / min(plain) < 5
    assert min(warm) / min(cold) < 0.1


@pytest.mark.benchmark
def test_small_files(place: Place, tmp_path: Path, show_figures: Callable[..., None]) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    for number in range(SMALL_FILES):
        (folder / f"{number}.raw").write_bytes(os.urandom(SMALL_BYTES))
    device, remote = place.device, place.remote
    workdir = f"{remote}/qnn-harness"
    ours, plain, warm = [], [], []
    one = Deployer(device, workdir).file_set(
        "small", [DeployFile(path, path.name) for path in folder.iterdir()]
    )
    for _ in range(ROUNDS):
        plain.append(timed(lambda: adb_push(device, folder, f"{remote}/plain")))
        shutil.rmtree(place.local / "plain")
        ours.append(timed(lambda: Deployer(device, workdir).deploy_sets([one])))
        warm.append(timed(lambda: Deployer(device, workdir).deploy_sets([one])))
        shutil.rmtree(place.local / "qnn-harness")
    each = timed(lambda: push_each(device, folder, f"{remote}/each"))
    show_figures(
        f"{SMALL_FILES} files of {SMALL_BYTES} bytes",
        deploy_s=f"{min(ours):.3f}",
        adb_push_s=f"{min(plain):.3f}",
        to_adb_push=f"{min(ours) / min(plain):.2f}",
        adbutils_s=f"{each:.2f}",
        adbutils_to_deploy=f"{each / min(ours):.0f}",
        warm_s=f"{min(warm):.3f}",
    )
    assert min(ours) / min(plain) < 2.4
    assert each / min(ours) > 3
