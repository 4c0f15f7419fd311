"""Turns the lab's description into devices that answer: servers, simulated devices, facts."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice
from harness.adb.key import harness_key
from harness.adb.server import AdbServer, PrivateAdbServer, SeenDevice, is_loopback
from harness.errors import ConfigError, DeviceError, InfraError
from harness.lab.cross_checks import EMULATED_TARGET
from harness.lab.facts import SCRIPT, DeviceFacts, parse_facts
from harness.lab.identity import require_same_device, require_serial
from harness.lab.inventory import DeviceConfig, Lab
from harness.lab.lease import Leases
from harness.qnn.platforms import PLATFORMS, Target
from harness.qnn.socs import KERNEL_SOC_IDS, SOCS
from harness.simulator.board import Board, soc_files
from harness.simulator.device import SimulatedDevice
from harness.simulator.emulation import make_board
from harness.simulator.properties import board_properties, device_properties

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
        leases: Leases | None = None,
        lease_wait_s: float = 0.0,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`leases` keeps other processes off the devices in use, from `device` until `close`.

        `lease_wait_s` is how long (seconds) a device is waited for that another process holds;
        `notify` is told of it.
        """
        self.lab = lab
        self.leases = leases
        self._lease_wait_s = lease_wait_s
        self._notify = notify
        self._key_folder = key_folder
        self._storage_root = storage_root
        self._private: PrivateAdbServer | None = None
        self._attached: dict[str, AttachedDevice] = {}
        self._identities: dict[str, str] = {}
        self._simulated: dict[str, SimulatedDevice] = {}
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the simulated devices and our adb server; safe to call twice."""
        self._attached.clear()
        for device in self._simulated.values():
            device.stop()
        self._simulated.clear()
        self._private = None
        self._cleanup.close()
        if self.leases is not None:
            self.leases.close()

    def hold(self, name: str) -> None:
        """Takes the lease of a device, if leases are kept.

        Raises DeviceHeld if another process has it; who waited in vain once is not kept waiting
        again.
        """
        if self.leases is not None:
            wait_s, self._lease_wait_s = self._lease_wait_s, 0.0
            self.leases.take(self.key(name), name, wait_s=wait_s, notify=self._notify)
            self._lease_wait_s = wait_s

    def release(self, name: str) -> None:
        """Lets go of a device: a simulated one is ended, the next `device` attaches it anew."""
        attached = self._attached.pop(name, None)
        simulated = self._simulated.pop(name, None)
        if simulated is not None:
            simulated.stop()
            if attached is not None:
                with contextlib.suppress(InfraError):
                    attached.adb.server.disconnect(attached.adb.serial)

    def detach(self, name: str) -> None:
        """Forgets a device without ending it; the next `device` asks it anew."""
        self._attached.pop(name, None)

    def reconnect(self, name: str) -> None:
        """Has the adb server connect a real device anew; a simulated one need not be.

        Raises InfraError if one with an address is not back in 20 s, or its adb server does not
        answer.
        """
        (config,) = self.lab.select([name])
        self.detach(name)
        if config.simulated or config.serial is None:
            return
        server = self._server_of(config.host)
        if ":" in config.serial:
            server.disconnect(config.serial)
            server.connect(config.serial, deadline=Deadline(_CONNECT_S))
        elif server.state(config.serial, deadline=Deadline(_RECONNECT_S)) in ("device", "offline"):
            # whether it helped is for the one to say who uses the device next
            with contextlib.suppress(InfraError):
                server.reconnect(config.serial, deadline=Deadline(_RECONNECT_S))

    def connects_when_asked(self, name: str) -> bool:
        """Whether `device` itself connects a device, so that `reconnect` can do no more."""
        (config,) = self.lab.select([name])
        return config.simulated or ":" in (config.serial or "")

    def owns_server(self, name: str) -> bool:
        """Whether a device hangs on an adb server that is ours to restart."""
        (config,) = self.lab.select([name])
        return config.simulated

    def restart_server(self) -> None:
        """Ends our adb server; the next device that hangs on it starts it again."""
        for name in self._simulated:
            self.detach(name)
        private, self._private = self._private, None
        if private is not None:
            private.stop()

    def key(self, name: str) -> str:
        """What makes a device unique on this computer, whatever a lab calls it."""
        (config,) = self.lab.select([name])
        if config.simulated:
            return f"simulated:{(self._storage_root / name).resolve()}"
        serial, server = config.serial or "", self._server_of(config.host)
        if ":" in serial and not is_loopback(serial.rpartition(":")[0]):
            return f"tcp:{serial}"  # whichever adb server is connected to it
        host = "local" if is_loopback(server.host) else server.host
        return f"{host}:{server.port}:{serial}"

    def device(self, name: str) -> AttachedDevice:
        """The device of that name, connected and asked for its facts.

        Raises ConfigError for a name that the lab does not have or a target that cannot be told,
        DeviceHeld if another process uses it, InfraError if it does not become ready.
        """
        if name not in self._attached:
            (config,) = self.lab.select([name])
            self.hold(name)
            self._attached[name] = self._attach(config)
        return self._attached[name]

    def seen(self, host: str | None = None) -> list[SeenDevice]:
        """What an adb server for real devices reports; nothing where none is running.

        Without `host` it is the user's own, which is not started for this.
        """
        server = self._server_of(host)
        return server.devices() if server.is_running() else []

    def _attach(self, config: DeviceConfig) -> AttachedDevice:
        if config.simulated:
            server, serial, workdir = self._start_simulated(config)
        else:
            server, serial = self._server_of(config.host), config.serial or ""
            workdir = config.workdir
            if ":" in serial:
                server.connect(serial, deadline=Deadline(_CONNECT_S))
            _require_ready(server, serial)
        adb = AdbDevice(serial, server)
        facts = read_facts(adb, workdir)
        if not config.simulated:
            require_serial(serial, facts.serial_number)
        require_same_device(serial, self._identities.get(config.name), facts.identity)
        if facts.identity is not None:
            self._identities.setdefault(config.name, facts.identity)
        return AttachedDevice(config, adb, facts, _target(config, facts), workdir)

    def _start_simulated(self, config: DeviceConfig) -> tuple[AdbServer, str, str]:
        soc = SOCS[config.soc or ""]
        key = harness_key(self._key_folder)
        if self._private is None or not self._private.running:
            private = PrivateAdbServer(key_folder=self._key_folder)
            self._cleanup.callback(private.stop)
            private.start()
            self._private = private
        storage = self._storage_root / config.name
        workdir = str(storage / "data/local/tmp/qnn-harness")
        server = self._private.server
        started = self._simulated.get(config.name)
        if started is not None and started.running:
            server.connect(started.address, deadline=Deadline(_CONNECT_S))
            return server, started.address, workdir
        limit, board = config.storage_limit_mb, self._board(config)
        device = SimulatedDevice(
            config.name,
            storage=storage,
            properties=(device_properties if board is None else board_properties)(
                config.name, soc.name
            ),
            board=board,
            public_key=key.with_suffix(".pub"),
            storage_limit_bytes=None if limit is None else limit * 1_000_000,
        )
        self._simulated[config.name] = device
        device.start()
        server.connect(device.address, deadline=Deadline(_CONNECT_S))
        return server, device.address, workdir

    def _board(self, config: DeviceConfig) -> Board | None:
        """What a device runs on whose programs are not this computer's."""
        if config.target != EMULATED_TARGET:
            return None
        number = KERNEL_SOC_IDS.get(config.soc or "") if config.shows_soc else None
        files = {} if number is None else soc_files(config.soc or "", number)
        return make_board(files, cache=self._key_folder.parent / "boards")

    def _server_of(self, host: str | None) -> AdbServer:
        if host is None:
            return AdbServer()
        config = self.lab.host(host)
        return AdbServer(config.host, config.port)


def _target(config: DeviceConfig, facts: DeviceFacts) -> Target:
    """What the device says; devices.yaml may say the same, or what a device cannot tell."""
    field = f"devices.{config.name}.target"
    if facts.target is None:
        if facts.machine is None and config.target is not None:
            return config.target
        why = f"device {config.name} is no known target: {facts.target_reason}"
        raise ConfigError(why, field=field, choices=PLATFORMS)
    if config.target not in (None, facts.target):
        raise ConfigError(
            f"devices.yaml says that {config.name} is {config.target}, and the device itself that "
            f"it is {facts.target} ({facts.target_reason}); leave it out, the device is asked",
            field=field,
        )
    return facts.target


def read_facts(adb: AdbDevice, folder: str) -> DeviceFacts:
    """Asks a device about itself in one round trip; `folder` is where the harness will work.

    Raises DeviceError if it does not answer in time or answers endlessly.
    """
    script = f"set -- {shlex.quote(folder)}\n{SCRIPT}"
    answer = adb.shell(script, timeout_s=_FACTS_S, max_output_bytes=_MAX_FACTS_BYTES)
    if answer.truncated:
        raise DeviceError("its description of itself does not end", serial=adb.serial)
    return parse_facts(answer.stdout.decode("utf-8", "replace"))


def _require_ready(server: AdbServer, serial: str) -> None:
    states = {seen.serial: seen.state for seen in server.devices()}
    if serial not in states:
        there = ", ".join(f"{name} ({state})" for name, state in states.items()) or "no device"
        raise InfraError(
            f"device {serial} is not attached to the adb server at {server.host}:{server.port}; "
            f"it sees {there}"
        )
    if states[serial] != "device":
        hint = {
            "unauthorized": "unlock it and accept this computer's key",
            "offline": "reconnect its cable or run `adb reconnect`",
            "no permissions": "add a udev rule for it",
        }.get(states[serial], "see `adb devices -l`")
        raise InfraError(f"device {serial} is {states[serial]}: {hint}")
