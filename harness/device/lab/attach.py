"""The devices of the lab in use: what is configured of each, who has it, and how it is reached."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from harness.device.adb.address import USER_SERVER, ServerAddress
from harness.device.adb.device import AdbDevice
from harness.device.adb.server import AdbServer, SeenDevice
from harness.device.adb.wireless import TLS, has_address
from harness.device.lab.facts import DeviceFacts
from harness.device.lab.first_contact import read_facts, require_own_folder, transport_of
from harness.device.lab.health import Fitness, HealthRules, RecoveryRules, TimedGate
from harness.device.lab.held_leases import DeviceLease, SharedLeases
from harness.device.lab.identity import (
    CarriedId,
    require_same_device,
    require_serial,
    require_target,
)
from harness.device.lab.inventory import DeviceConfig, Lab
from harness.device.lab.lease import DeviceHeld, DeviceLent, LeaseLost, Leases
from harness.device.lab.lease_files import Held
from harness.device.lab.simulation import CONNECT_S, DeviceStorage, Simulation
from harness.device.lab.unknown_arch import unknown_arch
from harness.device.transport.device import Transport
from harness.device.transport.reach import Reach
from harness.ground.errors import ConfigError, InfraError
from harness.ground.facts.platforms import PLATFORMS, Target
from harness.ground.facts.socs import SOCS
from harness.ground.files.notices import at_work


@dataclass(frozen=True)
class AttachedDevice:
    """A device of the lab that is reachable now, and what it said about itself.

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
        """The `device` object of a result record."""
        shown = self.facts.coprocessors
        return {
            "name": self.name,
            "serial": self.transport.serial,
            "soc": self.soc,
            "htp_arch": self.htp_arch,
            "target": self.target,
            "simulated": self.simulated,
            "os_build": self.facts.os_build,
            "coprocessors": None if shown is None else asdict(shown),
        }


class LabDevice:
    """A device of the lab in use: what is configured of it, and all that is found out meanwhile.

    Whoever works with a device holds this; its name is for people. `device_id` is what was left on
    it, `fitness` how it has done so far, `answered` whether it was ever reached, so that it is
    worth waiting for, and `probe` the path of the probe there, once it was tried.
    """

    def __init__(self, lab: OpenLab, config: DeviceConfig) -> None:
        self.lab = lab
        self._described = lab.described
        self.config = config
        self.place = lab.described.place_of(config.name)
        self.fitness = Fitness()
        self.device_id = CarriedId()
        self.answered = False
        self.probe: str | None = None
        self.lease = None if lab.leases is None else DeviceLease(lab.leases, config.name)
        self._changes: int | None = None
        self._identity: tuple[str, ...] = ()
        self._loses_adb = TLS in (config.serial or "")
        self._attached: AttachedDevice | None = None

    @property
    def name(self) -> str:
        return self.config.name

    def unknown_arch(self) -> ConfigError:
        """Why its HTP architecture is not known, which is a mistake in devices.yaml."""
        told = self._attached.facts.soc if self._attached is not None else None
        return unknown_arch(self.config, told, self._described._file)

    @property
    def health_rules(self) -> HealthRules:
        return self._described.health_of(self.config)

    @property
    def recovery_rules(self) -> RecoveryRules:
        return self._described.recovery_of(self.config)

    @property
    def may_reboot(self) -> bool:
        """Whether it may be rebooted to bring it back.

        Not the computer that we are on, nor a phone whose adb over Wi-Fi ends with that.
        """
        stays = self.config.transport != "local" and not self._loses_adb
        return self.recovery_rules.reboot and stays

    @property
    def may_restart_server(self) -> bool:
        """Whether the user's own adb server, on which it hangs, may be restarted."""
        if self.config.transport != "adb" or self.is_ours:
            return False
        at_home = self._described.server_of(self.config) == USER_SERVER
        return self.recovery_rules.restart_server and at_home

    @property
    def gate(self) -> TimedGate | None:
        return self._described.gate_of(self.config)

    @property
    def is_ours(self) -> bool:
        return self.config.simulated

    @cached_property
    def key(self) -> str:
        if self.is_ours:
            return self.lab.simulation.key(self.name)
        return self._described.address_of(self.config)

    @property
    def _far_server(self) -> ServerAddress | None:
        if self.is_ours or self.config.transport != "adb":
            return None
        address = self._described.server_of(self.config)
        return None if address.is_here else address

    @property
    def far_host(self) -> str | None:
        address = self._far_server
        return None if address is None else self.config.host or str(address)

    @property
    def lost_host(self) -> ServerAddress | None:
        address = self._far_server
        return address if address is not None and Reach(address).is_lost else None

    @property
    def can_power_cycle(self) -> bool:
        """Whether its power can be switched, and is not to blame for its host."""
        has_port = self.place is not None and self.place.has_power_port
        if not (has_port or self.config.power) or self.lost_host is not None:
            return False
        by_adb = self.config.transport == "adb"
        return not by_adb or AdbServer(self._described.server_of(self.config)).is_running()

    def power_cycle(self) -> None:
        """Switches it off and on. Raises InfraError."""
        if self.config.power is not None:
            self.config.power.switch()
        elif self.place is not None:
            self.place.power_cycle()

    @property
    def is_out(self) -> bool:
        return self.fitness.out is not None

    @property
    def was_lent(self) -> bool:
        return self.fitness.out is not None and isinstance(self.fitness.out.error, DeviceLent)

    @property
    def is_taken(self) -> bool:
        """Whether another process has it now, as far as its address tells.

        Nobody can have a simulated one. Where leases cannot be read, whoever takes it is told.
        """
        return self._is_with(lambda leases: leases.look(self.key))

    @property
    def has_loan(self) -> bool:
        return self._is_with(lambda leases: leases.loan(self.key))

    def _is_with(self, look: Callable[[Leases], Held | None]) -> bool:
        leases = self.lab.leases
        with contextlib.suppress(InfraError):
            return not (self.is_ours or leases is None) and look(leases.leases) is not None
        return False

    def hold(self) -> None:
        """Takes the lease of its address, if leases are kept and labgrid lets us have it.

        Raises DeviceHeld if another process has it; who waited in vain once is not kept waiting
        again.
        """
        if self.place is not None:
            if (why := self.place.why_not()) is not None:
                raise DeviceHeld(why, Held(None, 0.0))
            if self._changes is None:
                self._changes = len(self.place.changes())
        if self.lease is not None and (not self.is_ours or self.lab.simulation.are_leased):
            self.lease.take(self.key)

    def require_held(self) -> None:
        """Raises LeaseLost if another process may have got it while this one uses it.

        It is given up then: the next `attach` takes it anew, if it can be had.
        """
        try:
            if self.place is not None:
                if (why := self.place.why_not()) is not None:
                    raise LeaseLost(why)
                if len(self.place.changes()) != (self._changes or 0):
                    raise LeaseLost(f"labgrid gave the place of {self.name} to others meanwhile")
            if self.lease is not None:
                self.lease.require()
        except LeaseLost:
            self.release()
            raise

    def attach(self) -> AttachedDevice:
        """Connects it and asks it for its facts; what it said before, while it stays connected.

        Raises WrongTarget for a target that cannot be told, DeviceHeld if another process uses it,
        LeaseLost if one may have begun to, InfraError if it does not become ready.
        """
        if self._attached is not None:
            self.require_held()
            return self._attached
        self.hold()
        found = self._ask()
        while not self._claim(found):
            found = self._ask()
        self._attached = found
        return found

    def detach(self) -> None:
        """Forgets what it said without ending it; the next `attach` asks it anew."""
        self._attached = None

    def release(self) -> None:
        """Lets go of it: a simulated one is ended, the next `attach` attaches it anew."""
        attached, self._attached, self._changes = self._attached, None, None
        if self.lab.simulation.end(self.name) and attached is not None:
            with contextlib.suppress(InfraError):
                attached.transport.disconnect()

    def reconnect(self, *, within_s: float = CONNECT_S) -> None:
        """Connects a real device anew; a simulated one need not be.

        Raises InfraError if one with an address is not back in `within_s` or 20 s, or its adb
        server does not answer.
        """
        self.detach()
        if not self.is_ours:
            self._way.reconnect(timeout_s=min(within_s, CONNECT_S))

    def _claim(self, found: AttachedDevice) -> bool:
        """Leases what it says it is; False if what it said is old by now.

        A simulated device is what its folder is, which is leased already.
        """
        if self.lease is None or self.is_ours:
            return True
        said = next(iter(found.facts.identity), None)
        if said is None:
            own_id = self.device_id.look(found.transport, found.workdir)
            said = None if own_id is None else f"device id {own_id.text}"
        if said is None:
            return True
        # images are copied with the machine-id in them: only the boot tells such devices apart
        try:
            return self.lease.take_device(f"{said} boot {found.facts.boot}")
        except DeviceHeld:
            self.release()
            raise

    def _ask(self) -> AttachedDevice:
        config, workdir = self.config, self.config.workdir
        if self.is_ours:
            server, serial, workdir = self.lab.simulation.start(config)
            transport: Transport = AdbDevice(serial, server)
        else:
            transport = self._way
            transport.connect(timeout_s=CONNECT_S)
        serial = transport.serial
        at_work(serial, name=config.name)
        if not self.is_ours and config.transport != "adb":
            require_own_folder(transport, workdir)
        facts = read_facts(transport, workdir)
        if not self.is_ours and config.transport == "adb":
            require_serial(serial, facts.serial_number)
        require_same_device(serial, self._identity, facts.identity)
        # what was damaged on its way once may be told the next time
        self._identity = max(self._identity, facts.identity, key=len)
        self._loses_adb |= facts.loses_adb and has_address(serial)
        self.answered = True
        target = require_target(config, facts, serial)
        dsp = self.lab.simulation.dsp_of(config)
        return AttachedDevice(config, transport, facts, target, workdir, dsp)

    @property
    def _way(self) -> Transport:
        return transport_of(self._described, self.config)


class OpenLab:
    """The lab in use: starts what must be started on first need and ends it on `close`.

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
        """Simulated devices are those that last, below `storage_root`, or else `instances`.

        `leases` keeps other processes off the devices in use, from `attach` until `close`.

        `lease_wait_s` is how long (seconds) a device is waited for that another process holds.
        """
        self.described = lab
        self.leases = None if leases is None else SharedLeases(leases, wait_s=lease_wait_s)
        self.simulation = Simulation(
            key_folder=key_folder, storage_root=storage_root, instances=instances
        )
        self._devices: dict[str, LabDevice] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the simulated devices and our adb server; safe to call twice."""
        self.simulation.close()
        for device in self.devices:
            device.detach()
        if self.leases is not None:
            self.leases.leases.close()

    def device(self, name: str) -> LabDevice:
        """The device of that name. Raises ConfigError for one that the lab does not have."""
        if name not in self._devices:
            (config,) = self.described.select([name])
            self._devices[name] = LabDevice(self, config)
        return self._devices[name]

    @property
    def devices(self) -> Iterable[LabDevice]:
        return tuple(self._devices.values())

    def hold_all(self, names: Iterable[str]) -> None:
        """Takes the leases of several devices in an order that is the same for every process.

        Two runs on the same devices then never wait for each other. Which of them cannot be had is
        said when it is used.
        """
        several = sorted(map(self.device, set(names)), key=lambda device: device.key)
        for device in several if len(several) > 1 else ():
            with contextlib.suppress(InfraError):
                device.hold()

    def restart_server(self) -> None:
        """Ends our adb server; the next device that hangs on it starts it again."""
        for device in self.devices:
            if device.is_ours:
                device.detach()
        self.simulation.end_server()

    def seen(self) -> list[SeenDevice]:
        """What the user's own adb server reports; nothing where it is not running."""
        server = AdbServer()
        return server.devices() if server.is_running() else []
