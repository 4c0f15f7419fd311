"""The devices of the lab in use: their configuration, leases and connections."""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol, Self

from harness.core.errors import ConfigError, DeviceRefused, InfraError, plugin_faults
from harness.core.guarded_process import start_daemon
from harness.core.notices import report_progress
from harness.core.socs import KERNEL_SOC_IDS, PLATFORMS, SOCS, Target
from harness.core.state_folders import BOARDS
from harness.core.yaml_document import did_you_mean, entries_of, read_document
from harness.lab.device_config import (
    EMULATED_TARGET,
    AdbDeviceConfig,
    DeviceConfig,
    SimulatedDeviceConfig,
)
from harness.lab.facts import DeviceFacts, read_facts
from harness.lab.health import Fitness, HealthRules, RecoveryRules, TimedGate
from harness.lab.identity import CarriedId, require_same_device, require_serial, require_target
from harness.lab.inventory import Lab
from harness.lab.lease import DeviceHeld, Held, LeaseLost, Leases, Occupied
from harness.simulator.board import Board, dsp_folder, make_board, soc_files
from harness.simulator.boot_files import board_properties, device_properties
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_address import TLS, ServerAddress, has_address
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from harness.transport.device import Transport
from harness.transport.device_lock import DeviceLock
from harness.transport.transport_errors import Reach


def unknown_arch(config: DeviceConfig, own_soc: str | None, file: Path | None) -> ConfigError:
    """Return the mistake of `file` in a device of unknown HTP; `own_soc`: as it reports it."""
    line = None
    with contextlib.suppress(ConfigError):
        document = read_document(file) if file else None
        for index, entry in entries_of(document, "devices").items() if document else ():
            if document and entry.get("name") == config.name:
                line = document.line(("devices", index, "soc"))
    soc = config.soc or own_soc
    hint = f" (the device reports {own_soc})" if own_soc else ""
    problem = f"the SoC is not known; set `soc` or `htp_arch`{hint}"
    if soc in SOCS:
        problem = f"{soc} has no HTP"
    elif config.soc:
        hint = (
            f" (the device reports {own_soc})"
            if own_soc in SOCS
            else did_you_mean(config.soc, SOCS)
        )
        problem = f"soc {config.soc} is unknown{hint or '; if it is correct, set `htp_arch`'}"
    return ConfigError(f"{config.name}: {problem}", file=file, line=line)


_FACTS_S: Final = 15.0


def require_own_folder(device: Transport, folder: str) -> None:
    """Create the work folder if it is missing; only our account may own it and write there.

    Else another account of a board could replace what runs as us. Raises DeviceRefused.
    """
    path = shlex.quote(folder)
    finished = device.shell(
        f"mkdir -p {path}&&[ -O {path} ]&&[ ! -h {path} ]&&"
        f"case $(ls -ld {path}) in ????????w*)exit 1;;esac",
        timeout_s=_FACTS_S,
        doing="check the owner of its work folder",
    )
    if not finished.ok:
        message = finished.stderr.decode("utf-8", "replace").strip()[-300:]
        why = f": {message}" if message else ", or others can write to it"
        raise DeviceRefused(
            f"the work folder {folder} does not belong to the account of the harness{why}; set "
            "another `workdir`",
            serial=device.serial,
        )


CONNECT_S = 20.0
"""Time limit for an adb server to connect a device."""


class DeviceStorage(Protocol):
    """Storage for simulated devices that only one run has."""

    def key(self, name: str) -> str:
        """Return the name of a device among all processes of the run."""
        ...

    def storage(self, name: str) -> Path:
        """Return the storage folder of a device. Raises InfraError."""
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
        """Keep devices below `storage_root`, or in `instances` if that is given."""
        self.devices: dict[str, SimulatedDevice] = {}
        self.server: PrivateAdbServer | None = None
        self._key_folder = key_folder
        self._storage_root = storage_root
        self._instances = instances
        self._cleanup = contextlib.ExitStack()
        self._closed = False
        self._beginning = threading.RLock()

    def lease_key(self, name: str) -> str:
        """Return the key to lease; devices of one run are used by one process at a time."""
        return self.key(name) if self._instances is None else self._instances.key(name)

    def key(self, name: str) -> str:
        """Return a device's identity on this computer: its folder, whatever a lab calls it."""
        return f"simulated:{(self._storage_root / name).resolve()}"

    def start(self, config: SimulatedDeviceConfig) -> Transport:
        """Start a device unless it runs. Raises InfraError, also after `close`."""
        with self._beginning:
            if self._closed:
                raise InfraError(f"{config.name} cannot be started: its run has ended")
            key, soc = harness_key(self._key_folder), SOCS[config.soc]
            if self.server is None or not self.server.running:
                private = PrivateAdbServer(key_folder=self._key_folder)
                self._cleanup.callback(private.stop)
                private.start()
                self.server = private
            device = self.devices.get(config.name)
            if device is None or not device.running:
                storage = self._storage_root / config.name
                if self._instances is not None:
                    storage = self._instances.storage(config.name)
                board, root = None, os.getuid() == 0
                properties = device_properties(config.name, soc.name, root=root)
                if config.target == EMULATED_TARGET:
                    board = self._board(config)
                    properties = board_properties(config.name, soc.name)
                limit = config.storage_limit_mb
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
            return AdbDevice(device.address, self.server.server)

    def _board(self, config: SimulatedDeviceConfig) -> Board:
        soc = SOCS[config.soc]
        number = KERNEL_SOC_IDS.get(soc.name) if config.shows_soc else None
        files = {} if number is None else soc_files(soc.name, number)
        dsp = None if config.dsp is None else config.dsp.limits(config.htp_arch, soc.vtcm_mb)
        return make_board(files, cache=self._key_folder.parent / BOARDS, dsp=dsp)

    def end(self, name: str) -> bool:
        """End a device. Return whether it had been started."""
        device = self.devices.pop(name, None)
        if device is not None:
            device.stop()
        return device is not None

    def close(self) -> None:
        """End all of it; safe to call twice.

        A device that another thread is starting is ended, too; none can be started afterwards.
        """
        with self._beginning:
            self._closed = True
        for name in tuple(self.devices):
            self.end(name)
        self.server = None
        self._cleanup.close()
        if self._instances is not None:
            self._instances.close()


_SWITCHING_S: Final = 60.0


@dataclass(frozen=True)
class AttachedDevice:
    """A device of the lab that is reachable now, and the facts it reported.

    `simulated_dsp` is the folder on this computer of its DSP where that is simulated.
    """

    config: DeviceConfig
    transport: Transport
    facts: DeviceFacts
    target: Target
    workdir: str
    simulated_dsp: Path | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def soc(self) -> str | None:
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
        return not self.config.simulated and PLATFORMS[self.target].has_dsp

    @property
    def adreno(self) -> str | None:
        known = SOCS.get(self.soc or "")
        return self.config.adreno or self.facts.adreno or (known.adreno if known else None)

    @property
    def simulated(self) -> bool:
        return self.config.simulated or self.facts.simulated

    def identity(self) -> dict[str, object]:
        """Return the `device` object of a result record."""
        coprocessors = self.facts.coprocessors
        return {
            "name": self.name,
            "serial": self.transport.serial,
            "soc": self.soc,
            "htp_arch": self.htp_arch,
            "target": self.target,
            "simulated": self.simulated,
            "os_build": self.facts.os_build,
            "coprocessors": None if coprocessors is None else asdict(coprocessors),
        }


class LabDevice:
    """A device of the lab in use: its configuration, and all that is learnt about it in the run.

    Whoever works with a device holds this; its name is for people. `device_id` is what was left on
    it, `fitness` how it has done so far, `was_reached` whether it was ever reached, so that it is
    worth waiting for, and `probe` the path of the probe there, once it was tried. `identity` is
    how it identified itself, the most specific name first.
    """

    def __init__(self, lab: OpenLab, config: DeviceConfig) -> None:
        self.lab = lab
        self._described = lab.described
        self.config = config
        self.place = lab.described.place_of(config.name)
        self.fitness = Fitness()
        self.device_id = CarriedId()
        self.was_reached = False
        self.probe: str | None = None
        self._patience_s = lab.lease_wait_s
        self._leased: list[str] = []
        self._device_key: str | None = None
        self._device_lock: DeviceLock | None = None
        self._is_in_line = False
        self.identity: tuple[str, ...] = ()
        self._loses_adb = TLS in getattr(config, "serial", "")
        self._attached: AttachedDevice | None = None

    @property
    def name(self) -> str:
        return self.config.name

    def unknown_arch(self) -> ConfigError:
        """Return the mistake in devices.yaml that leaves its HTP architecture unknown."""
        actual = self._attached.facts.soc if self._attached is not None else None
        return unknown_arch(self.config, actual, self._described._file)

    @property
    def health_rules(self) -> HealthRules:
        return self.config.health or self._described.health

    @property
    def recovery_rules(self) -> RecoveryRules:
        return self.config.recovery or self._described.recovery

    @property
    def may_reboot(self) -> bool:
        """Return whether it may be rebooted to recover it.

        This computer may not, nor a phone whose adb over Wi-Fi ends with a reboot.
        """
        return self.recovery_rules.reboot and self.config.can_reboot and not self._loses_adb

    @property
    def gate(self) -> TimedGate | None:
        """The gate of timed cases, None if they need not wait."""
        lab_gate = None if self.is_simulated_here else self._described.gate
        return self.config.gate or lab_gate

    @property
    def is_simulated_here(self) -> bool:
        return self.config.simulated

    @cached_property
    def key(self) -> str:
        if self.is_simulated_here:
            return self.lab.simulation.key(self.name)
        return self.config.location(self._described)

    @property
    def _far_server(self) -> ServerAddress | None:
        address = self.config.server(self._described)
        return None if address is None or address.is_here else address

    @property
    def far_host(self) -> str | None:
        address = self._far_server
        return None if address is None else getattr(self.config, "host", None) or str(address)

    @property
    def lost_host(self) -> ServerAddress | None:
        address = self._far_server
        return address if address is not None and Reach(address).is_lost else None

    @property
    def can_power_cycle(self) -> bool:
        """Return whether its power can be switched; False if it is its host that is lost."""
        has_port = self.place is not None and self.place.has_power_port
        if not (has_port or self.config.power) or self.lost_host is not None:
            return False
        server = self.config.server(self._described)
        return server is None or AdbServer(server).is_running()

    def power_cycle(self) -> None:
        """Switch it off and on. Raises InfraError."""
        if self.config.power is not None:
            command = ["sh", "-c", self.config.power]
            start_daemon(command, title="the command of `power`", within_s=_SWITCHING_S)
        elif self.place is not None:
            self.place.power_cycle()

    @property
    def is_offline(self) -> bool:
        return self.fitness.offline is not None

    @property
    def is_held(self) -> bool:
        """Return whether this process holds it, or leases are not kept."""
        return self.lab.leases is None or bool(self._leased)

    @property
    def lease_key(self) -> str:
        """The key to lease before it answers: its address, or the folder of a simulated device."""
        return self.lab.simulation.lease_key(self.name) if self.is_simulated_here else self.key

    @property
    def _keys(self) -> Iterable[str]:
        place_key = None if self.place is None else self.place.lease_key
        return filter(None, (place_key, self.lease_key, self._device_key))

    def try_acquire(self) -> Occupied | None:
        """Take the leases of its place, address and identity if leases are kept and all are free.

        Returns the holder otherwise, None at once if it is held here. Raises DeviceHeld if
        its source does not let us have it.
        """
        if self.place is not None and (why := self.place.why_not()) is not None:
            raise DeviceHeld(why, Held(None, 0.0))
        if self.lab.leases is None:
            return None
        is_held = bool(self._leased)
        for key in self._keys:
            if (holding := self._lease(key)) is not None:
                self._free()
                self.leave_line()  # others of this computer come first: nobody would take our turn
                return Occupied(self.name, key, holding)
        if not is_held and (holding := self._lock_on_device()) is not None:
            self._free()
            return Occupied(self.name, self.lease_key, holding)
        self._patience_s = self.lab.lease_wait_s
        return None

    def acquire(self) -> None:
        """Acquire it, waiting for another process that has it, and report the wait.

        Raises DeviceHeld if that takes too long; after one wait in vain, later calls do not wait.
        """

        def attempt() -> list[Occupied]:
            occupied = self.try_acquire()
            return [] if occupied is None else [occupied]

        patience_s, self._patience_s = self._patience_s, 0.0
        self.lab.wait_for(attempt, wait_s=patience_s)

    def give_back(self) -> None:
        """Give back its leases. Its facts are kept, and are valid again once it is acquired."""
        self._free()

    def _lease(self, key: str) -> Held | None:
        leases = self.lab.leases
        if leases is None or key in self._leased:
            return None
        if (holding := leases.try_acquire(key, self.name)) is None:
            self._leased.append(key)
        return holding

    def _lock_on_device(self) -> Held | None:
        """Lock it on itself; return who has it. At a second call in a wait, stand in line there."""
        lock, leases = self._device_lock, self.lab.leases
        if lock is None or leases is None:
            return None
        key = self._device_key or self.lease_key
        holding = leases.lock_on_device(key, lock, wait=self._is_in_line)
        self._is_in_line = holding is not None
        return holding

    def leave_line(self) -> None:
        """No longer stand in line on the device itself."""
        if self._is_in_line and self._device_lock is not None:
            self._device_lock.release()
        self._is_in_line = False

    def _free(self, except_keys: Iterable[str] = ()) -> None:
        for key in set(self._leased).difference(except_keys):
            self._leased.remove(key)
            if self.lab.leases is not None:
                self.lab.leases.free(key)

    def require_held(self) -> None:
        """Raise LeaseLost if another process may have acquired it in the meantime.

        It is released then: the next `attach` acquires it again, if it is free.
        """
        try:
            if self.place is not None and (why := self.place.why_not()) is not None:
                raise LeaseLost(why)
            if self.lab.leases is not None:
                for key in self._leased:
                    self.lab.leases.require(key)
                if (holding := self._lock_on_device()) is not None:
                    raise LeaseLost(f"device {self.name} is in use by {holding}")
        except LeaseLost:
            self._free()
            self.release()
            raise

    def attach(self) -> AttachedDevice:
        """Connect it and read its facts; return the same object while it stays connected.

        Raises WrongTarget for an unknown target, DeviceHeld if another process uses it,
        LeaseLost if one may have started to, InfraError if it does not become ready.
        """
        if self._attached is not None and self.is_held:
            self.require_held()
            return self._attached
        self.acquire()
        while self._attached is None:
            device = self._connect()
            if self._is_claimed(device):
                self._attached = device
            else:  # its facts may be outdated once it is acquired
                self._free()
                self.release()
                self.acquire()
        return self._attached

    def detach(self) -> None:
        """Forget its facts without ending it; the next `attach` reads them again."""
        self._attached = None

    def release(self) -> None:
        """Release it: a simulated device is ended; the next `attach` connects it again."""
        attached, self._attached = self._attached, None
        if self.lab.simulation.end(self.name) and attached is not None:
            with contextlib.suppress(InfraError):
                attached.transport.disconnect()

    def reconnect(self, *, within_s: float = CONNECT_S) -> None:
        """Reconnect a real device; a simulated one needs no reconnection.

        Raises InfraError if one with an address is not back in `within_s` or 20 s, or its adb
        server does not answer.
        """
        self.detach()
        if not self.is_simulated_here:
            self._transport().reconnect(timeout_s=min(within_s, CONNECT_S))

    def _is_claimed(self, attached: AttachedDevice) -> bool:
        """Lease its reported identity, too. Return False if another process has it.

        A simulated device is identified by its folder, which is leased already.
        """
        if self.lab.leases is None or self.is_simulated_here:
            return True
        identity = next(iter(attached.facts.identity), None)
        if identity is None:
            own_id = self.device_id.look(attached.transport, attached.workdir)
            identity = None if own_id is None else f"device id {own_id.text}"
        # images are copied with the machine-id in them: only the boot tells such devices apart
        self._device_key = None if identity is None else f"{identity} boot {attached.facts.boot}"
        self._free(except_keys=self._keys)
        if self._device_key is not None and self._lease(self._device_key) is not None:
            return False
        if self._device_lock is None and self.config.has_own_lease(self._described):
            self._device_lock = DeviceLock(attached.transport, attached.workdir)
        return self._lock_on_device() is None

    def _transport(self) -> Transport:
        file, field = self._described._file, f"devices, {self.name}"
        with plugin_faults(self.config, "open", file=file, field=field):
            transport: object = self.config.open(self.lab)
            if not isinstance(transport, Transport):
                raise TypeError(f"returned {transport!r}, which is not a Transport")
        return transport

    def _connect(self) -> AttachedDevice:
        config, workdir = self.config, self.config.workdir
        transport = self._transport()
        transport.connect(timeout_s=CONNECT_S)
        serial, dsp = transport.serial, None
        report_progress(serial, name=config.name)
        if isinstance(config, SimulatedDeviceConfig):
            storage = self.lab.simulation.devices[config.name].storage
            workdir = str(storage / workdir.strip("/"))
            dsp = None if config.dsp is None else dsp_folder(storage)
        elif not isinstance(config, AdbDeviceConfig):
            require_own_folder(transport, workdir)
        facts = read_facts(transport, workdir)
        if isinstance(config, AdbDeviceConfig):
            require_serial(serial, facts.serial_number)
        require_same_device(serial, self.identity, facts.identity)
        # a name that was damaged in transmission may arrive whole the next time
        self.identity = max(self.identity, facts.identity, key=len)
        self._loses_adb |= facts.loses_adb and has_address(serial)
        self.was_reached = True
        target = require_target(config, facts, serial)
        return AttachedDevice(config, transport, facts, target, workdir, dsp)


class OpenLab:
    """The lab in use: starts what is needed on first use and ends it on `close`.

    Simulated devices and the adb server they hang on are ours; devices with a serial are reached
    through the server they are already attached to (the user's, or a remote one).
    """

    def __init__(
        self,
        lab: Lab,
        *,
        key_folder: Path,
        storage_root: Path,
        instances: DeviceStorage | None = None,
        leases: Leases | None = None,
        lease_wait_s: float = 0.0,
    ) -> None:
        """Keep simulated devices below `storage_root`, or in `instances` if that is given.

        `leases` keeps other processes off the devices in use, from `attach` until `close`.

        `lease_wait_s` is how long (seconds) a device is waited for that another process holds.
        """
        self.described = lab
        self.leases, self.lease_wait_s = leases, lease_wait_s
        self.simulation = Simulation(
            key_folder=key_folder, storage_root=storage_root, instances=instances
        )
        self._devices: dict[str, LabDevice] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the simulated devices and our adb server; safe to call twice."""
        self.simulation.close()
        for device in self.devices:
            device.leave_line()
            device.detach()
        if self.leases is not None:
            self.leases.close()

    def wait_for(self, attempt: Callable[[], Sequence[Occupied]], *, wait_s: float | None) -> None:
        """Wait until an attempt to acquire one of several devices succeeds (`Leases.wait_for`)."""
        if self.leases is None:
            attempt()
            return
        try:
            self.leases.wait_for(attempt, wait_s=wait_s)
        finally:
            for device in self.devices:
                device.leave_line()

    def device(self, name: str) -> LabDevice:
        """Return the device of that name. Raises ConfigError if the lab does not have it."""
        if name not in self._devices:
            (config,) = self.described.select([name])
            self._devices[name] = LabDevice(self, config)
        return self._devices[name]

    @property
    def devices(self) -> Iterable[LabDevice]:
        """The devices that were requested so far."""
        return tuple(self._devices.values())

    def start_simulated(self, config: SimulatedDeviceConfig) -> Transport:
        return self.simulation.start(config)

    def restart_server(self) -> None:
        """End our adb server; the next device that hangs on it starts it again."""
        for device in self.devices:
            if device.is_simulated_here:
                device.detach()
        server, self.simulation.server = self.simulation.server, None
        if server is not None:
            server.stop()
