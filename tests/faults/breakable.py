"""A lab that breaks on command: adb server, relay and daemons that a run of pytest knows only by
their addresses in devices.yaml."""

import contextlib
import os
import random
import shutil
import signal
import socket
from pathlib import Path
from typing import Any, Self

import yaml

from harness.core.deadline import Deadline
from harness.core.guarded_process import GuardedProcess, spawn_guarded
from harness.core.state_folders import cache_root
from harness.models.builtin_models import Model
from harness.models.context_cache import ContextStore
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.simulator.boot_files import device_properties
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import harness_key
from harness.transport.adb_address import TcpAddress
from harness.transport.adb_server import AdbServer, adb_binary
from tests.android.runtimes import NO_BUDGET, add_stand_in
from tests.android.system import android
from tests.faults.control import VARIABLE, controlled
from tests.faults.table import ANDROID, SIMULATED
from tests.integration.device_runs import DeviceRuns, Finished
from tests.integration.lab.simulated import simulated
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.integration.transport.adb.real_adbd import Android, RealDevice
from tests.needed import FORMATS, need
from tests.waiting import wait_for

CONNECT_S = 15.0
VERSION = "2.51.0"
SMALL_BYTES = 30_000_000
BRIM_BYTES = 160_000_000
# what stands in for QNN there is small
ANDROID_BYTES = {"small": 40_000, "brim": 4_000_000}
_NO_OTHER_DEVICES = {"ADB_USB": "0", "ADB_MDNS": "0", "ADB_MDNS_OPENSCREEN": "0", "ADB_EMU": "0"}
_NO_OTHER_DEVICES |= {"ADB_MDNS_AUTO_CONNECT": "0", "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553"}


def port_of_ones_own() -> int:
    """A free port below those that the kernel gives out, so that it stays free between servers."""
    while True:
        port = random.randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class KeptServer:
    """An adb server on a port that stays the same however often it is killed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        harness_key(home)
        self.port = port_of_ones_own()
        self.server = AdbServer(TcpAddress(port=self.port))
        self._process: GuardedProcess | None = None

    def start(self, adb: Path | None = None) -> None:
        self._process = spawn_guarded(
            [adb or adb_binary(), "-L", self.server.address.spec, "nodaemon", "server"],
            env={"HOME": str(self._home), "PATH": os.defpath, **_NO_OTHER_DEVICES},
            cwd=self._home,
        )
        wait_for(lambda: self.server.is_running(timeout_s=1), "the adb server", CONNECT_S)

    def kill(self) -> None:
        pid = self._process.command_pid()
        os.kill(pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop()


class MountedDevice(SimulatedDevice):
    """A simulated device whose /data is mounted as a test wants it, in namespaces of its own."""

    def __init__(self, name: str, *, storage: Path, public_key: Path, mounts: str) -> None:
        properties = device_properties(name, "QCS8550")
        super().__init__(name, storage=storage, properties=properties, public_key=public_key)
        self._mounts = mounts

    def command(self) -> list[str]:
        self.storage.mkdir(exist_ok=True)
        script = f'set -e; cd "$0"; {self._mounts}; touch .simulated-device; exec "$@"'
        unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
        return [*unshare, str(self.storage), *super().command()]


class BreakableLab:
    """One device behind a relay, and three of limited use; `run` runs pytest on them.

    Commands of `carry_out`: cut, stall, slow, kill-server, old-server, reboot, other-device.
    `undo` takes back what was done to cable and device, `heal` to the adb server too, and connects
    the device.
    """

    def __init__(self, folder: Path, kind: str, old_adb: Path | None) -> None:
        self.folder = folder
        self.kind = kind
        self._old_adb = old_adb
        self._home = folder / "home"
        self._cleanup = contextlib.ExitStack()
        self._runs = DeviceRuns(folder)
        self._server = KeptServer(self._home)
        self._devices: dict[str, SimulatedDevice | RealDevice] = {}
        self._serving = ""
        self._replaced = False
        self._addresses: dict[str, str] = {}
        self._androids: dict[str, Android] = {}
        self.repository = folder / "maven"
        self.link: FaultyLink
        if kind == ANDROID:
            need(FORMATS)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self._server.stop)
            self._server.start()
            if self.kind == ANDROID:
                self._add_runtime()
            first = self._start("first")
            self.link = cleanup.enter_context(FaultyLink(first.address))
            cleanup.callback(self._stop_devices)
            self._serving = "first"
            self._addresses = {"main": self.link.address}
            for name in ("small", "brim", "frozen"):
                device = self._limited(name)
                cleanup.callback(device.stop)
                device.start()
                self._addresses[name] = device.address
            self._write_lab(self._addresses)
            control = self.folder / "control"
            cleanup.enter_context(controlled(control, self.carry_out))
            self._runs.environment[VARIABLE] = str(control)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()
        for storage in self.folder.glob("storage-*/"):
            shutil.rmtree(storage)

    @property
    def server(self) -> AdbServer:
        return self._server.server

    @property
    def workdir(self) -> str:
        """The work folder of the device behind the relay."""
        top = str(self._storage("first")) if self.kind == SIMULATED else ""
        return f"{top}/data/local/tmp/qnn-harness"

    def run(self, *arguments: object, suites: Path, **settings: str) -> Finished:
        return self._runs.run(*arguments, suites=suites, **settings)

    def carry_out(self, command: str) -> None:
        link = self.link
        match command:
            case "cut":
                link.cut()
            case "stall":
                link.stall()
            case "slow":
                link.bytes_per_s = 50e3
            case "kill-server":
                self._restart_server(None)
            case "old-server":
                self._restart_server(self._old_adb)
            case "reboot":
                self._devices[self._serving].stop()
                self._devices[self._serving].start()
                link.lead_to(self._devices[self._serving].address)
                self.server.connect(link.address, deadline=Deadline(CONNECT_S))
            case "other-device":
                if "other" not in self._devices:
                    self._start("other")
                self._serve("other")
            case "undo":
                self._undo()
            case "heal":
                self._undo()
                if self._replaced:
                    self._restart_server(None)
                for address in self._addresses.values():
                    self.server.connect(address, deadline=Deadline(CONNECT_S))
            case _:
                raise ValueError(command)

    def _add_runtime(self) -> None:
        """Add the stand-in for QNN on Android, which knows the one context of these tests."""
        cache = cache_root()
        contexts = ContextStore(cache, Catalog(cache), ProbeBuilder(cache / "probe"))
        tiny = contexts.get(Model.parse("tiny"), VERSION, 73)
        work = self.folder / "stand-in"
        add_stand_in(self.repository, VERSION, [tiny], budget=NO_BUDGET, work=work)

    def _undo(self) -> None:
        """The cable is back where it was, and the right device at its end."""
        if self._serving != "first":
            self._serve("first")
        self.link.resume()

    def _serve(self, name: str) -> None:
        """Serve another device, as a cable put into it does."""
        self._serving = name
        self.link.cut()
        self.link.lead_to(self._devices[name].address)
        self.link.resume()
        self.server.disconnect(self.link.address)
        self.server.connect(self.link.address, deadline=Deadline(CONNECT_S))

    def _restart_server(self, adb: Path | None) -> None:
        self._server.kill()
        self._server.start(adb)
        self._replaced = adb is not None

    def _start(self, name: str) -> SimulatedDevice | RealDevice:
        storage = self._storage(name)
        device: SimulatedDevice | RealDevice
        if self.kind != SIMULATED:
            storage.mkdir(exist_ok=True)
            device = self._real(name, storage=storage)
        else:
            device = simulated(f"sim-{name}", storage, self._home)
        self._devices[name] = device
        device.start()
        return device

    def _stop_devices(self) -> None:
        for device in self._devices.values():
            device.stop()

    def _limited(self, name: str) -> RealDevice | SimulatedDevice:
        """A device with little storage, or with storage that cannot be written to."""
        sizes = {"small": SMALL_BYTES, "brim": BRIM_BYTES}
        if self.kind == ANDROID:
            sizes = ANDROID_BYTES
        if self.kind != SIMULATED:
            if name == "frozen":
                return self._real(name, read_only=True)
            return self._real(name, storage_limit_bytes=sizes[name])
        key = harness_key(self._home).with_suffix(".pub")
        mounts = "mkdir -p data/local/tmp; mount --bind data data; mount -o remount,bind,ro data"
        if name in sizes:
            mounts = (
                f'mount -t tmpfs -o size={sizes[name]} tmpfs .; cd "$0"; mkdir -p data/local/tmp'
            )
        storage = self._storage(name)
        return MountedDevice(f"sim-{name}", storage=storage, public_key=key, mounts=mounts)

    def _real(self, name: str, **options: Any) -> RealDevice:
        if self.kind == ANDROID:
            if name not in self._androids:
                self._androids[name] = android(self.folder, name)
            options["android"] = self._androids[name]
        return RealDevice(Path(os.environ["QNN_HARNESS_ADBD_ROOT"]), **options)

    def _storage(self, name: str) -> Path:
        return self.folder / f"storage-{name}"

    def _write_lab(self, addresses: dict[str, str]) -> None:
        devices = []
        for name, address in addresses.items():
            top = "/data/local/tmp"
            if self.kind == SIMULATED:
                top = f"{self._storage('first' if name == 'main' else name)}{top}"
            devices.append(
                {
                    "name": name,
                    "serial": address,
                    "host": "here",
                    "tags": [name],
                    "soc": "QCS8550",
                    "target": "android-arm64" if self.kind == ANDROID else "linux-x64",
                    "workdir": f"{top}/qnn-harness",
                }
            )
        here = {"name": "here", "host": "127.0.0.1", "port": self._server.port}
        lab: dict[str, Any] = {"schema": 1, "hosts": [here]}
        if self.kind == ANDROID:
            maven = {"name": "maven", "kind": "maven", "repository": str(self.repository)}
            lab["runtimes"] = [maven | {"coordinates": "com.qualcomm.qti:qnn-runtime"}]
        self._runs.file.write_text(yaml.safe_dump(lab | {"devices": devices}))
