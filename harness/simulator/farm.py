"""A farm of simulated devices on an adb server of their own, and the lab that reaches them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

import yaml

from harness.core.deadline import Deadline
from harness.core.files import scratch_folder
from harness.simulator.boot_files import device_properties
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_server import AdbServer

_SOC: Final = "QCS8550"
_WORKDIR: Final = "data/local/tmp/qnn-harness"
_CONNECT_S: Final = 20.0
_AT_ONCE: Final = 4


def lab_text(socket: str, devices: Iterable[SimulatedDevice]) -> str:
    """Return the devices.yaml of devices behind the socket of an adb server."""
    lines = [
        "# A farm of simulated devices, there while `qnn-harness simulator farm` runs.",
        "schema: 1",
        "gate: {max_busy_percent: 100}  # all share this computer's processors",
        f"hosts:\n  - {{name: farm, socket: {socket}}}",
        "devices:",
    ]
    for device in devices:
        fields = {"name": device.name, "serial": device.address, "host": "farm", "soc": _SOC}
        fields |= {"target": "linux-x64", "workdir": f"{device.storage}/{_WORKDIR}"}
        flow = yaml.safe_dump(fields, default_flow_style=True, sort_keys=False, width=10_000)
        lines.append(f"  - {flow.strip()}")
    return "\n".join(lines) + "\n"


class SimulatedFarm:
    """`count` simulated devices and their adb server; a context manager.

    `key_folder` has the harness's key. The devices and their storage are removed at its end.
    """

    server: AdbServer
    lab: str
    """The text of its devices.yaml."""

    def __init__(self, count: int, *, key_folder: Path) -> None:
        self._count = count
        self._key_folder = key_folder
        self._ends = contextlib.ExitStack()
        self.devices: list[SimulatedDevice] = []

    def __enter__(self) -> Self:
        """Start all of it. Raise InfraError."""
        with contextlib.ExitStack() as ends:
            folder = ends.enter_context(scratch_folder())
            key = harness_key(self._key_folder).with_suffix(".pub")
            self.server = ends.enter_context(PrivateAdbServer(key_folder=self._key_folder)).server
            self.devices = [
                SimulatedDevice(
                    name := f"farm-{number:02}",
                    storage=folder / name,
                    properties=device_properties(name, _SOC),
                    public_key=key,
                    prepares_gpu=True,
                )
                for number in range(1, self._count + 1)
            ]
            for device in self.devices:
                ends.callback(device.stop)
            with ThreadPoolExecutor(_AT_ONCE) as starting:
                list(starting.map(SimulatedDevice.start, self.devices))
            for device in self.devices:
                self.server.connect(device.address, deadline=Deadline(_CONNECT_S))
            self.lab = lab_text(self.server.address.spec.partition(":")[2], self.devices)
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
