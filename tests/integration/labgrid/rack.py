"""A labgrid lab of this computer: a real coordinator, a real exporter, simulated devices."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import yaml

from harness.core.deadline import Deadline
from harness.core.guarded_process import GuardedProcess, spawn_guarded
from harness.simulator.device import SimulatedDevice
from tests.faults.breakable import KeptServer, port_of_ones_own
from tests.integration.device_runs import DeviceRuns
from tests.integration.lab.simulated import simulated
from tests.waiting import wait_for

PROGRAMS = Path(sys.executable).parent
PATIENCE_S = 60.0


class Labgrid:
    """A real coordinator and a real exporter, which `begin` starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.names: list[str] = []
        self.address = f"127.0.0.1:{port_of_ones_own()}"
        self._coordinator: GuardedProcess | None = None
        self._exporter: GuardedProcess | None = None

    def begin(
        self,
        exported: Mapping[str, Mapping[str, Mapping[str, object]]],
        tags: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Has a place for each group of resources; both by name."""
        self.names = list(exported)
        (self.folder / "exporter.yaml").write_text(yaml.safe_dump(dict(exported)))
        # as the coordinator keeps them, which it does every 15 s: one that is killed may forget
        matches = {name: [{"exporter": "rack", "group": name, "cls": "*"}] for name in exported}
        places = {name: {"matches": matches[name], "tags": dict(tags[name])} for name in exported}
        (self.folder / "places.yaml").write_text(yaml.safe_dump(places))
        self.start()

    def start(self) -> None:
        """Starts coordinator and exporter."""
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with (self.folder / "coordinator.log").open("ab") as log:
            self._coordinator = spawn_guarded(
                [PROGRAMS / "labgrid-coordinator", "-l", self.address],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: self._client("places").returncode == 0, "the coordinator does not start")
        self.start_exporter()

    def start_exporter(self) -> None:
        """Starts it, and waits until it shows everything."""
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with (self.folder / "exporter.log").open("ab") as log:
            self._exporter = spawn_guarded(
                [PROGRAMS / "labgrid-exporter", "-c", self.address, "-n", "rack", "exporter.yaml"],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )
        number = sum(map(len, yaml.safe_load((self.folder / "exporter.yaml").read_text()).values()))
        wait_for(lambda: len(self.client("resources").split()) == number, "no exporter")

    def stop(self) -> None:
        """Kills both."""
        self.stop_exporter()
        _kill(self._coordinator)
        self._coordinator = None

    def stop_exporter(self) -> None:
        """Kills it, which the coordinator sees a little later."""
        was_there, self._exporter = self._exporter, None
        _kill(was_there)

    def client(self, *words: str, user: str = "admin") -> str:
        """Return the output of labgrid's own client."""
        completed = self._client(*words, user=user)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout

    def _client(self, *words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAMS / "labgrid-client", "-x", self.address, *words],
            env=os.environ | {"LG_USERNAME": user, "LG_HOSTNAME": "desk"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def holders(self) -> dict[str, str]:
        """Return the holder of each place that is held."""
        words = self.client("who").splitlines()[1:]
        return {line.split()[2]: f"{line.split()[1]}/{line.split()[0]}" for line in words}

    def has_reservations(self) -> bool:
        return "Reservation" in self.client("reservations")

    def describe(
        self, runs: DeviceRuns, recovery: Mapping[str, object] | None = None, **settings: object
    ) -> None:
        """Has the lab of `runs` be this one."""
        device = {"soc": "QCS8550", "target": "linux-x64", "pool": "rack"}
        labgrid = {"coordinator": self.address, "filters": {"board": "sim"}, "device": device}
        lab = {"schema": 1, "labgrid": labgrid | settings, "devices": []}
        lab |= {"recovery": dict(recovery)} if recovery else {}
        runs.file.write_text(yaml.safe_dump(lab))


def _kill(process: GuardedProcess | None) -> None:
    if process is not None:
        pid = process.command_pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        process.stop()


class Rack(Labgrid):
    """Places `p1`, `p2`..., each with a simulated device behind one real adb server."""

    def __init__(self, folder: Path, places: int) -> None:
        super().__init__(folder)
        self._number = places
        self.devices: dict[str, SimulatedDevice] = {}
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.adb = KeptServer(self.folder / "home")
            self.adb.start()
            stack.callback(self.adb.stop)
            for name in [f"p{number + 1}" for number in range(self._number)]:
                device = simulated(name, self.folder / f"storage-{name}", self.folder / "home")
                self.devices[name] = stack.enter_context(device)
            addresses = {name: self.address_of(name, stack) for name in self.devices}
            for address in addresses.values():
                self.adb.server.connect(address, deadline=Deadline(PATIENCE_S))
            service = {"address": "127.0.0.1", "port": self.adb.port, "username": "adb"}
            stack.callback(self.stop)
            self.begin(
                {
                    name: {"NetworkService": dict(service)} | self.more_of(name)
                    for name in self.devices
                },
                {
                    name: {"board": "sim", "adb_serial": address}
                    for name, address in addresses.items()
                },
            )
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def address_of(self, name: str, stack: contextlib.ExitStack) -> str:
        """Return the address of a place's device, reached through what `stack` ends."""
        return self.devices[name].address

    def more_of(self, name: str) -> dict[str, dict[str, object]]:
        """The resources that a place has besides."""
        return {}
