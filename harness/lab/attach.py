"""Turns the lab's description into devices that answer: servers, simulated devices, facts."""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, Self

from harness.adb.address import ServerAddress
from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice
from harness.adb.private_server import PrivateAdbServer, harness_key
from harness.adb.reach import Reach
from harness.adb.server import STATE_ADVICE, AdbServer, SeenDevice
from harness.errors import DeviceError, InfraError
from harness.files.cache import BOARDS
from harness.files.notices import at_work
from harness.lab.cross_checks import EMULATED_TARGET
from harness.lab.facts import SCRIPT, DeviceFacts, parse_facts
from harness.lab.held_leases import HeldLeases
from harness.lab.identity import DeviceIds, require_same_device, require_serial, require_target
from harness.lab.inventory import DEFAULT_WORKDIR, DeviceConfig, Lab
from harness.lab.lease import DeviceHeld, Held, LeaseLost, Leases
from harness.qnn.platforms import PLATFORMS, Target
from harness.qnn.socs import KERNEL_SOC_IDS, SOCS
from harness.simulator.board import Board, soc_files
from harness.simulator.device import SimulatedDevice
from harness.simulator.emulation import make_board
from harness.simulator.properties import board_properties, device_properties

UNPLUGGED = "is unplugged or switched off"
"""What the error says of a device that its adb server does not see."""

_CONNECT_S = 20.0
_RECONNECT_S = 3.0
_FACTS_S = 15.0
_MAX_FACTS_BYTES = 1 << 20


@dataclass(frozen=True)
class AttachedDevice:
    """A device of the lab that is reachable now, and what it said about itself."""

    config: DeviceConfig
    adb: AdbDevice
    facts: DeviceFacts
    target: Target
    workdir: str

    @property
    def name(self) -> str:
        """Its name in devices.yaml."""
        return self.config.name

    @property
    def soc(self) -> str | None:
        """What devices.yaml says, else what the device says."""
        return self.config.soc or self.facts.soc

    @property
    def htp_arch(self) -> int | None:
        """HTP architecture (73 for v73) as configured, else that of its SoC, else None."""
        if self.config.htp_arch is not None:
            return self.config.htp_arch
        known = SOCS.get(self.soc or "")
        return known.htp_arch if known else None

    @property
    def has_dsp(self) -> bool:
        """Whether it should have nodes to reach its DSP."""
        return not self.config.simulated and PLATFORMS[self.target].has_dsp

    @property
    def adreno(self) -> str | None:
        """Adreno model number as configured, else asked, else that of its SoC."""
        known = SOCS.get(self.soc or "")
        return self.config.adreno or self.facts.adreno or (known.adreno if known else None)

    def identity(self) -> dict[str, object]:
        """The `device` object of a result record."""
        shown = self.facts.coprocessors
        return {
            "name": self.name,
            "serial": self.adb.serial,
            "soc": self.soc,
            "htp_arch": self.htp_arch,
            "target": self.target,
            "simulated": self.config.simulated,
            "os_build": self.facts.os_build,
            "coprocessors": None if shown is None else asdict(shown),
        }


class Instances(Protocol):
    """Storage for simulated devices that only one run has."""

    def storage(self, name: str) -> Path:
        """The storage folder of a device. Raises InfraError."""
        ...

    def close(self) -> None:
        """Called when the devices have ended."""
        ...


class OpenLab:
    """The lab in use: starts what must be started on first need and ends it on `close`.

    `simulated` are the devices that it has started, by name, and `private_server` is their adb
    server: the handles of whoever wants to break them.

    Simulated devices and the adb server they hang on are ours; devices with a serial are reached
    through the server they are already attached to (the user's, or a remote one).
    """

    def __init__(
        self,
        lab: Lab,
        *,
        key_folder: Path,
        storage_root: Path,
        instances: Instances | None = None,
        leases: Leases | None = None,
        lease_wait_s: float = 0.0,
    ) -> None:
        """Simulated devices are those that last, below `storage_root`, or else `instances`.

        `leases` keeps other processes off the devices in use, from `device` until `close`.

        `lease_wait_s` is how long (seconds) a device is waited for that another process holds.
        """
        self.lab = lab
        self.leases = leases
        self.device_ids = DeviceIds()
        self._key_folder = key_folder
        self._storage_root = storage_root
        self._instances = instances
        self.private_server: PrivateAdbServer | None = None
        self._attached: dict[str, AttachedDevice] = {}
        self._identities: dict[str, str] = {}
        self._answered: set[str] = set()
        self._changes: dict[str, int] = {}
        self._leases_held = None if leases is None else HeldLeases(leases, wait_s=lease_wait_s)
        self.simulated: dict[str, SimulatedDevice] = {}
        self._cleanup = contextlib.ExitStack()
        self._closed = False
        self._beginning = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the simulated devices and our adb server; safe to call twice.

        What another thread is beginning meanwhile is ended, too, and nothing begins afterwards.
        """
        with self._beginning:
            self._closed = True
        self._attached.clear()
        for device in self.simulated.values():
            device.stop()
        self.simulated.clear()
        self.private_server = None
        self._cleanup.close()
        if self._instances is not None:
            self._instances.close()
        if self.leases is not None:
            self.leases.close()

    def hold(self, name: str) -> None:
        """Takes the lease of a device's address, if leases are kept and labgrid lets us have it.

        Nobody else has an instance of a simulated device, so there is nothing to lease. Raises
        DeviceHeld if another process has it; who waited in vain once is not kept waiting again.
        """
        (config,) = self.lab.select([name])
        if (place := self.lab.place_of(name)) is not None:
            if (why := place.why_not()) is not None:
                raise DeviceHeld(why, Held(None, 0.0))
            self._changes.setdefault(name, len(place.changes()))
        is_instance = config.simulated and self._instances is not None
        if self._leases_held is not None and not is_instance:
            self._leases_held.take(name, self.key(name))

    def hold_all(self, names: Iterable[str]) -> None:
        """Takes the leases of several devices in an order that is the same for every process.

        Two runs on the same devices then never wait for each other. Which of them cannot be had is
        said when it is used.
        """
        several = sorted(set(names), key=self.key)
        for name in several if len(several) > 1 else ():
            with contextlib.suppress(InfraError):
                self.hold(name)

    def require_held(self, name: str) -> None:
        """Raises LeaseLost if another process may have got a device that this one uses.

        It is given up then: the next `device` takes it anew, if it can be had.
        """
        try:
            if (place := self.lab.place_of(name)) is not None:
                if (why := place.why_not()) is not None:
                    raise LeaseLost(why)
                if len(place.changes()) != self._changes.get(name, 0):
                    raise LeaseLost(f"labgrid gave the place of {name} to others meanwhile")
            if self._leases_held is not None:
                self._leases_held.require(name)
        except LeaseLost:
            self.release(name)
            raise

    def _claim(self, device: AttachedDevice) -> bool:
        """Leases what a device says it is; False if what it said is old by now.

        A simulated device is what its folder is, which is leased already.
        """
        if self._leases_held is None or device.config.simulated:
            return True
        said = device.facts.identity
        if said is None:
            own_id = self.device_ids.look(device.name, device.adb, device.workdir)
            said = None if own_id is None else f"device id {own_id.text}"
        if said is None:
            return True
        # images are copied with the machine-id in them: only the boot tells such devices apart
        try:
            return self._leases_held.take_device(device.name, f"{said} boot {device.facts.boot}")
        except DeviceHeld:
            self.release(device.name)
            raise

    def release(self, name: str) -> None:
        """Lets go of a device: a simulated one is ended, the next `device` attaches it anew."""
        attached = self._attached.pop(name, None)
        self._changes.pop(name, None)
        simulated = self.simulated.pop(name, None)
        if simulated is not None:
            simulated.stop()
            if attached is not None:
                with contextlib.suppress(InfraError):
                    attached.adb.server.disconnect(attached.adb.serial)

    def detach(self, name: str) -> None:
        """Forgets a device without ending it; the next `device` asks it anew."""
        self._attached.pop(name, None)

    def reconnect(self, name: str, *, within_s: float = _CONNECT_S) -> None:
        """Has the adb server connect a real device anew; a simulated one need not be.

        Raises InfraError if one with an address is not back in `within_s` or 20 s, or its adb
        server does not answer.
        """
        (config,) = self.lab.select([name])
        self.detach(name)
        if config.simulated or config.serial is None:
            return
        server = self._server_of(config)
        if ":" in config.serial:
            server.disconnect(config.serial)
            server.connect(config.serial, deadline=Deadline(min(within_s, _CONNECT_S)))
        elif server.state(config.serial, deadline=Deadline(_RECONNECT_S)) in ("device", "offline"):
            # whether it helped is for the one to say who uses the device next
            with contextlib.suppress(InfraError):
                server.reconnect(config.serial, deadline=Deadline(_RECONNECT_S))

    def has_answered(self, name: str) -> bool:
        """Whether a device was reached before, so that it is worth waiting for."""
        return name in self._answered

    def owns_server(self, name: str) -> bool:
        """Whether a device hangs on an adb server that is ours to restart."""
        (config,) = self.lab.select([name])
        return config.simulated

    def lost_host(self, name: str) -> ServerAddress | None:
        """The adb server of a device, if it is on another computer and nobody reaches it now."""
        (config,) = self.lab.select([name])
        address = self.lab.server_of(config)
        if config.simulated or address.is_here or not Reach(address).is_lost:
            return None
        return address

    def can_power_cycle(self, name: str) -> bool:
        """Whether the power of a device can be switched, and is not to blame for its host."""
        place = self.lab.place_of(name)
        if place is None or not place.has_power_port or self.lost_host(name) is not None:
            return False
        (config,) = self.lab.select([name])
        return self._server_of(config).is_running()

    def restart_server(self) -> None:
        """Ends our adb server; the next device that hangs on it starts it again."""
        for name in self.simulated:
            self.detach(name)
        private, self.private_server = self.private_server, None
        if private is not None:
            private.stop()

    def key(self, name: str) -> str:
        """One name for a device's address on this computer, whatever a lab calls it."""
        (config,) = self.lab.select([name])
        if config.simulated:
            return f"simulated:{(self._storage_root / name).resolve()}"
        return self.lab.address_of(config)

    def device(self, name: str) -> AttachedDevice:
        """The device of that name, connected and asked for its facts.

        Raises ConfigError for a name that the lab does not have, WrongTarget for a target that
        cannot be told, DeviceHeld if another process uses it, LeaseLost if one may have begun to,
        InfraError if it does not become ready.
        """
        if name in self._attached:
            self.require_held(name)
            return self._attached[name]
        (config,) = self.lab.select([name])
        self.hold(name)
        device = self._attach(config)
        while not self._claim(device):
            device = self._attach(config)
        self._attached[name] = device
        return device

    def seen(self) -> list[SeenDevice]:
        """What the user's own adb server reports; nothing where it is not running."""
        server = AdbServer()
        return server.devices() if server.is_running() else []

    def _attach(self, config: DeviceConfig) -> AttachedDevice:
        if config.simulated:
            server, serial, workdir = self._start_simulated(config)
        else:
            server, serial = self._server_of(config), config.serial or ""
            workdir = config.workdir
            if ":" in serial:
                server.connect(serial, deadline=Deadline(_CONNECT_S))
            _require_ready(server, serial)
        adb = AdbDevice(serial, server)
        at_work(serial, name=config.name)
        facts = read_facts(adb, workdir)
        if not config.simulated:
            require_serial(serial, facts.serial_number)
        require_same_device(serial, self._identities.get(config.name), facts.identity)
        if facts.identity is not None:
            self._identities.setdefault(config.name, facts.identity)
        self._answered.add(config.name)
        return AttachedDevice(config, adb, facts, require_target(config, facts, serial), workdir)

    def _start_simulated(self, config: DeviceConfig) -> tuple[AdbServer, str, str]:
        with self._beginning:
            if self._closed:
                raise InfraError(f"{config.name} is not begun: its run has ended")
            server, device, storage = self._begun(config)
        server.connect(device.address, deadline=Deadline(_CONNECT_S))
        return server, device.address, str(storage / DEFAULT_WORKDIR.strip("/"))

    def _begun(self, config: DeviceConfig) -> tuple[AdbServer, SimulatedDevice, Path]:
        soc = SOCS[config.soc or ""]
        key = harness_key(self._key_folder)
        if self.private_server is None or not self.private_server.running:
            private = PrivateAdbServer(key_folder=self._key_folder)
            self._cleanup.callback(private.stop)
            private.start()
            self.private_server = private
        own, server = self._instances, self.private_server.server
        storage = self._storage_root / config.name if own is None else own.storage(config.name)
        started = self.simulated.get(config.name)
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
        self.simulated[config.name] = device
        device.start()
        return server, device, storage

    def _board(self, config: DeviceConfig) -> Board | None:
        """What a device runs on whose programs are not this computer's."""
        if config.target != EMULATED_TARGET:
            return None
        number = KERNEL_SOC_IDS.get(config.soc or "") if config.shows_soc else None
        files = {} if number is None else soc_files(config.soc or "", number)
        return make_board(files, cache=self._key_folder.parent / BOARDS)

    def _server_of(self, config: DeviceConfig) -> AdbServer:
        return AdbServer(self.lab.server_of(config))


def read_facts(adb: AdbDevice, folder: str) -> DeviceFacts:
    """Asks a device about itself in one round trip; `folder` is where the harness will work.

    Raises DeviceError if it does not answer in time or answers endlessly.
    """
    script = f"set -- {shlex.quote(folder)}\n{SCRIPT}"
    answer = adb.shell(
        script, timeout_s=_FACTS_S, max_output_bytes=_MAX_FACTS_BYTES, doing="ask what it is"
    )
    if answer.truncated:
        raise DeviceError("its description of itself does not end", serial=adb.serial)
    return parse_facts(answer.stdout.decode("utf-8", "replace"))


def _require_ready(server: AdbServer, serial: str) -> None:
    states = {seen.serial: seen.state for seen in server.devices()}
    if serial not in states:
        there = ", ".join(f"{name} ({state})" for name, state in states.items()) or "no device"
        raise InfraError(
            f"device {serial} {UNPLUGGED}: it is not attached to the {server}, which sees {there}"
        )
    if (state := states[serial]) != "device":
        advice = STATE_ADVICE.get(state, "see `adb devices -l`")
        raise InfraError(f"device {serial} is {state}: {advice}")
