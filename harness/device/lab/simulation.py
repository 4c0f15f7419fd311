"""The simulated devices of a lab in use, and the adb server that they hang on, which is ours."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Protocol

from harness.device.adb.server import AdbServer
from harness.device.lab.cross_checks import EMULATED_TARGET
from harness.device.lab.inventory import DEFAULT_WORKDIR, DeviceConfig
from harness.device.simulator.board import Board, dsp_folder, soc_files
from harness.device.simulator.device import SimulatedDevice
from harness.device.simulator.emulation import make_board
from harness.device.simulator.private_server import PrivateAdbServer, harness_key
from harness.device.simulator.properties import board_properties, device_properties
from harness.ground.errors import InfraError
from harness.ground.facts.socs import KERNEL_SOC_IDS, SOCS
from harness.ground.files.cache import BOARDS
from harness.ground.host.deadline import Deadline

CONNECT_S = 20.0
"""How long an adb server may take to connect a device."""


class DeviceStorage(Protocol):
    """Storage for simulated devices that only one run has."""

    def key(self, name: str) -> str:
        """What all processes of the run call a device."""
        ...

    def storage(self, name: str) -> Path:
        """The storage folder of a device. Raises InfraError."""
        ...

    def close(self) -> None:
        """Called when the devices have ended."""
        ...


class Simulation:
    """Starts simulated devices and their adb server on first need, and ends them on `close`.

    `devices` are those that it has started, by name, and `server` is their adb server: the handles
    of a test that breaks them.
    """

    def __init__(
        self, *, key_folder: Path, storage_root: Path, instances: DeviceStorage | None = None
    ) -> None:
        """Devices are those that last, below `storage_root`, or else `instances`."""
        self.devices: dict[str, SimulatedDevice] = {}
        self.server: PrivateAdbServer | None = None
        self._key_folder = key_folder
        self._storage_root = storage_root
        self._instances = instances
        self._cleanup = contextlib.ExitStack()
        self._closed = False
        self._beginning = threading.RLock()

    def lease_key(self, name: str) -> str:
        """What is leased of a device: of those of one run, one process uses one at a time."""
        return self.key(name) if self._instances is None else self._instances.key(name)

    def key(self, name: str) -> str:
        """What a device is on this computer: its folder, whatever a lab calls it."""
        return f"simulated:{(self._storage_root / name).resolve()}"

    def start(self, config: DeviceConfig) -> tuple[AdbServer, str, str]:
        """Starts a device that is not running, and connects it: its server, serial and workdir.

        Raises InfraError, also after `close`.
        """
        with self._beginning:
            if self._closed:
                raise InfraError(f"{config.name} is not begun: its run has ended")
            server, device, storage = self._begun(config)
        server.connect(device.address, deadline=Deadline(CONNECT_S))
        return server, device.address, str(storage / DEFAULT_WORKDIR.strip("/"))

    def dsp_of(self, config: DeviceConfig) -> Path | None:
        """The folder on this computer of a started device's DSP; None if it has none."""
        device = self.devices.get(config.name)
        return None if config.dsp is None or device is None else dsp_folder(device.storage)

    def end(self, name: str) -> bool:
        """Ends a device; whether it had been started."""
        device = self.devices.pop(name, None)
        if device is not None:
            device.stop()
        return device is not None

    def end_server(self) -> None:
        """Ends the adb server; the next device that starts starts it again."""
        server, self.server = self.server, None
        if server is not None:
            server.stop()

    def close(self) -> None:
        """Ends all of it; safe to call twice.

        What another thread is beginning meanwhile is ended, too, and nothing begins afterwards.
        """
        with self._beginning:
            self._closed = True
        for name in tuple(self.devices):
            self.end(name)
        self.server = None
        self._cleanup.close()
        if self._instances is not None:
            self._instances.close()

    def _begun(self, config: DeviceConfig) -> tuple[AdbServer, SimulatedDevice, Path]:
        soc = SOCS[config.soc or ""]
        key = harness_key(self._key_folder)
        if self.server is None or not self.server.running:
            private = PrivateAdbServer(key_folder=self._key_folder)
            self._cleanup.callback(private.stop)
            private.start()
            self.server = private
        own, server = self._instances, self.server.server
        storage = self._storage_root / config.name if own is None else own.storage(config.name)
        started = self.devices.get(config.name)
        if started is not None and started.running:
            return server, started, storage
        limit, board = config.storage_limit_mb, self._board(config)
        if board is None:
            properties = device_properties(config.name, soc.name, root=os.getuid() == 0)
        else:
            properties = board_properties(config.name, soc.name)
        device = SimulatedDevice(
            config.name,
            storage=storage,
            properties=properties,
            board=board,
            prepares_gpu=config.prepares_gpu is True,
            public_key=key.with_suffix(".pub"),
            storage_limit_bytes=None if limit is None else limit * 1_000_000,
        )
        self.devices[config.name] = device
        device.start()
        return server, device, storage

    def _board(self, config: DeviceConfig) -> Board | None:
        """What a device runs on whose programs are not this computer's."""
        if config.target != EMULATED_TARGET:
            return None
        soc = SOCS[config.soc or ""]
        number = KERNEL_SOC_IDS.get(soc.name) if config.shows_soc else None
        files = {} if number is None else soc_files(soc.name, number)
        dsp = None if config.dsp is None else config.dsp.limits(config.htp_arch, soc.vtcm_mb)
        return make_board(files, cache=self._key_folder.parent / BOARDS, dsp=dsp)
