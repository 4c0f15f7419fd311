"""devices.yaml: which devices the lab has, where they hang, and what is known of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from harness.device.adb.address import USER_SERVER, ServerAddress, TcpAddress, UnixAddress
from harness.device.dsp.hexagon import why_no_dsp
from harness.device.lab.cross_checks import (
    EMULATED_TARGET,
    PREPARING_TARGET,
    SIMULATED_TARGETS,
    mistakes_between_fields,
)
from harness.device.lab.device_address import (
    LOCAL,
    device_address,
    service_address,
)
from harness.device.lab.device_url import device_at, ssh_address
from harness.device.lab.fields import (
    Address,
    Adreno,
    DeviceUrl,
    Dsp,
    Enabled,
    HtpArch,
    LabName,
    Serial,
    SshComputer,
    Word,
    Workdir,
)
from harness.device.lab.health import HealthRules, RecoveryRules, TimedGate
from harness.device.lab.labgrid import LabgridConfig, described
from harness.device.lab.notify import NotifyChannel
from harness.device.lab.runtime_sources import RuntimeSource, mistakes_of_sources
from harness.device.labgrid.place import Wanted
from harness.device.labgrid.session import FoundPlace, FoundPlaces, found_places
from harness.device.simulator.emulation import why_no_board
from harness.device.ssh.login import SshLogin, login_at
from harness.device.transport import this_computer
from harness.ground.errors import ConfigError, NoLabError
from harness.ground.facts.platforms import Target
from harness.ground.facts.socs import SOCS
from harness.ground.files.cache import BOARDS, cache_root
from harness.ground.yaml_lines.document import read_document, shown
from harness.ground.yaml_lines.models import SchemaOne, Text, check_document, did_you_mean

_log = logging.getLogger(__name__)

DEFAULT_WORKDIR: Final = "/data/local/tmp/qnn-harness"
BOARD_WORKDIR: Final = "/var/tmp/qnn-harness"
"""With another transport: every account may write there, and it outlives a reboot."""

SIMULATED_LAB: Final = Path(__file__).with_name("simulated.yaml")
"""A lab of this computer's simulated devices, for those who have not described theirs yet.

Who names none of them gets the first.
"""

_NO_FILE: Final = (
    "no such file; --lab FILE names another. `qnn-harness init` writes one of the devices that are "
    "attached, `qnn-harness init --simulated` of a simulated one. pytest, `qnn-harness run` and "
    "`bisect` need none for what this computer simulates: --device sim-v73 (or sim-v68, sim-v69, "
    "sim-v75, sim-v79, sim-v81, sim-arm64, sim-arm64-sm8650, sim-v73-dsp)"
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


class AdbHost(_Strict):
    """An adb server on another machine, or on another port of this one."""

    name: LabName
    """What `host` of a device refers to."""

    host: Address = "127.0.0.1"
    """Host name or IP address; with `ssh`, as seen from there."""

    port: Annotated[StrictInt, Field(ge=1, le=65535)] = 5037
    """Where it listens."""

    ssh: SshComputer | None = None
    """The computer, as [user@]host[:port], that ssh reaches it through."""

    socket: Annotated[Workdir, Field(max_length=107)] | None = None
    """In place of these: the Unix socket of a server on this computer."""

    @property
    def address(self) -> ServerAddress:
        """Where its server listens."""
        if self.socket is not None:
            return UnixAddress(self.socket)
        behind_ssh = ssh_address(self.ssh, self.host, self.port) if self.ssh else None
        return behind_ssh or TcpAddress(self.host, self.port)


class DeviceConfig(_Strict):
    """One device of the lab, as described; what is not said is asked of the device."""

    name: LabName
    """What options and reports call it."""

    serial: Serial | None = None
    """As `adb devices` prints it, or host:port of an adbd that listens on the network."""

    transport: Literal["adb", "ssh", "local"] = "adb"
    """What leads to it. `ssh`: a board with sshd, without adb; `local`: it is this computer."""

    address: DeviceUrl | None = None
    """In place of `serial` and `host`: adb://host:port/serial, or ssh://user@host/serial for an adb
    server behind ssh. With `transport: ssh`: [user@]host[:port], or a name of ssh's own."""

    simulated: StrictBool = False
    """Whether the harness starts it itself; it needs no serial then."""

    soc: Word | None = None
    """The SoC's name, e.g. QCS8550; what shall be simulated, or what the device does not tell."""

    htp_arch: HtpArch | None = None
    """73 for HTP v73; by default that of the SoC."""

    target: Target | None = None
    """What its libraries are built for; by default the device is asked."""

    adreno: Adreno | None = None
    """Model number of its GPU; by default that of the SoC, else the device is asked."""

    workdir: Workdir = DEFAULT_WORKDIR
    """The folder on a real device that the harness keeps to."""

    host: LabName | None = None
    """The entry of `hosts` whose adb server it hangs on; by default this computer's."""

    pool: LabName | None = None
    """Devices of one pool share cases: each runs once, on whichever of them is free."""

    enabled: Enabled = True
    """Whether it is used. `auto`, for simulated devices: where this computer can simulate it."""

    tags: tuple[Word, ...] = ()
    """Words of your own that tests can require."""

    shows_soc: StrictBool = False
    """Whether a simulated linux-arm64 board tells its SoC in /sys, as kernels of real ones do."""

    dsp: Dsp = None
    """Whether a simulated linux-arm64 board has a DSP: true, or limits of its own."""

    prepares_gpu: StrictBool | None = None
    """Whether a simulated linux-x64 device's GPU backend prepares graphs; by default it does."""

    storage_limit_mb: Annotated[StrictInt, Field(ge=1)] | None = None
    """How much (10^6 bytes) a simulated device can store; by default as much as the host."""

    store_limit_mb: Annotated[StrictInt, Field(ge=1)] | None = None
    """How much (10^6 bytes) deployed files may take on it; by default half of what is free."""

    health: HealthRules | None = None
    """Its own rules in place of the lab's."""

    recovery: RecoveryRules | None = None
    """Its own rules in place of the lab's."""

    power: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    """A command for sh on this computer that switches it off and on; 0: done. It is the last step
    that may bring it back."""

    gate: TimedGate | None = None
    """Its own in place of the lab's; a simulated device has none unless it is given here."""

    @property
    def login(self) -> SshLogin | None:
        return None if self.transport != "ssh" else login_at(self.address or "")

    @property
    def store_limit_bytes(self) -> int | None:
        return None if self.store_limit_mb is None else self.store_limit_mb * 1_000_000

    @model_validator(mode="before")
    @classmethod
    def _fill_in_what_the_soc_tells(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        filled = {key: value for key, value in data.items() if value is not None}
        if (at := device_at(str(filled.get("address")))) is not None:
            filled.setdefault("serial", at[1])
        if filled.get("transport") in ("ssh", "local"):
            filled.setdefault("workdir", BOARD_WORKDIR)
        if filled.get("transport") == "local":
            filled.setdefault("serial", this_computer.SERIAL)
        at_ssh = login_at(str(filled.get("address"))) if filled.get("transport") == "ssh" else None
        if at_ssh is not None:
            filled.setdefault("serial", str(at_ssh))
        soc = SOCS.get(str(filled.get("soc")))
        if soc is not None and soc.htp_arch is not None:
            filled.setdefault("htp_arch", soc.htp_arch)
        if soc is not None and soc.adreno is not None:
            filled.setdefault("adreno", soc.adreno)
        if filled.get("dsp", False) is not False:
            filled.setdefault("shows_soc", True)
        if filled.get("simulated") is True:
            filled.setdefault("target", SIMULATED_TARGETS[0])
            filled.setdefault("prepares_gpu", filled["target"] == PREPARING_TARGET)
        return filled


def _at_least_one(
    devices: tuple[DeviceConfig, ...], info: ValidationInfo
) -> tuple[DeviceConfig, ...]:
    # As a length constraint pydantic would also complain when all of them are wrong.
    # What is wrong in `labgrid` is told by itself; the key is missing then.
    if not devices and ("labgrid", None) in info.data.items():
        raise PydanticCustomError("devices", "must list at least one device")
    return devices


class Lab(_Strict):
    """All that devices.yaml says."""

    schema_number: SchemaOne
    """Of which version the file is."""

    hosts: tuple[AdbHost, ...] = ()
    """Adb servers other than this computer's own."""

    labgrid: LabgridConfig | None = None
    """Places of a labgrid lab whose devices a run takes besides; `devices: []` if it has no other.
    """

    devices: Annotated[tuple[DeviceConfig, ...], AfterValidator(_at_least_one)]
    """The devices, one or more; none only with `labgrid`."""

    health: HealthRules = HealthRules()
    """From when on a device is suspect or bad."""

    recovery: RecoveryRules = RecoveryRules()
    """What may be done to bring a device back."""

    gate: TimedGate = TimedGate()
    """What is waited for before a case marked `timed`."""

    runtimes: tuple[RuntimeSource, ...] = ()
    """Where libraries come from besides the package index, asked in this order."""

    notify: Annotated[tuple[NotifyChannel, ...], Field(exclude=True)] = ()
    """Channels that messages go to; kept in no run, since URLs give access."""

    _file: Path | None = PrivateAttr(None)
    _lacking: str | None = PrivateAttr(None)
    _lacking_of_dsps: str | None = PrivateAttr(None)
    _places: Mapping[str, FoundPlace] = PrivateAttr(default_factory=dict)

    def why_off(self, device: DeviceConfig) -> str | None:
        """Why a device is not used; None if it is."""
        if _is_left_to_the_computer(device):
            lacking = self._lacking or (device.dsp and self._lacking_of_dsps)
            if lacking:
                return f"is off: {lacking}"
        return None if device.enabled else "is disabled"

    def in_use(self) -> list[DeviceConfig]:
        """The devices that are on, which may be none."""
        return [device for device in self.devices if self.why_off(device) is None]

    def select(self, names: Iterable[str] | None = None) -> list[DeviceConfig]:
        """The devices of these names, in the order asked for and each once; None: all enabled.

        Raises ConfigError for a name that the lab does not have or that is off, saying why, and
        if no device is enabled.
        """
        if names is None:
            if not (enabled := self.in_use()):
                raise self._problem("no device is enabled")
            return enabled[:1] if self._file == SIMULATED_LAB else enabled
        return [self._in_use(name) for name in dict.fromkeys(names)]

    def _in_use(self, name: str) -> DeviceConfig:
        device = self._by_name.get(name)
        why_off = None if device is None else self.why_off(device)
        if device is None or why_off is not None:
            enabled = [one.name for one in self.in_use()]
            why = why_off or f"is not in the lab{did_you_mean(name, enabled)}"
            raise self._problem(f"device {shown(name)!r} {why}", choices=enabled)
        return device

    @cached_property
    def _by_name(self) -> Mapping[str, DeviceConfig]:
        return {device.name: device for device in self.devices}

    def place_of(self, name: str) -> FoundPlace | None:
        """The place of labgrid that a device hangs on; None if labgrid has no say in it."""
        return self._places.get(name)

    def health_of(self, device: DeviceConfig) -> HealthRules:
        """The rules for the health of a device."""
        return device.health or self.health

    def recovery_of(self, device: DeviceConfig) -> RecoveryRules:
        """What may be done to a device."""
        return device.recovery or self.recovery

    def gate_of(self, device: DeviceConfig) -> TimedGate | None:
        """What timed cases on a device wait for, None: nothing."""
        return device.gate or (None if device.simulated else self.gate)

    @property
    def folder(self) -> Path:
        return self._file.absolute().parent if self._file else Path.cwd()

    def host(self, name: str) -> AdbHost:
        """The adb host of that name. Raises ConfigError if there is none."""
        hosts = {host.name: host for host in self.hosts}
        if name not in hosts:
            problem = f"adb host {name!r} is not in the lab"
            raise ConfigError(problem, file=self._file, field="hosts", choices=list(hosts))
        return hosts[name]

    def with_devices(self, more: Iterable[DeviceConfig]) -> Lab:
        """The lab with more devices."""
        lab = self.model_copy(update={"devices": (*self.devices, *more)})
        lab.__dict__.pop("_by_name", None)  # the copy has that of this one
        return lab

    def server_of(self, device: DeviceConfig) -> ServerAddress:
        """Where the adb server listens that a real device hangs on. Raises ConfigError."""
        if device.address is not None and (at := device_at(device.address)) is not None:
            return at[0]
        return USER_SERVER if device.host is None else self.host(device.host).address

    def address_of(self, device: DeviceConfig) -> str:
        """One name for where a real device hangs, however it was written. Raises ConfigError."""
        if device.transport == "local":
            return LOCAL
        if (at := device.login) is not None:
            return service_address("ssh", at.host, at.port or 22)
        server = self.server_of(device)
        return device_address(device.serial or "", server.host, server.port)

    def _problem(self, problem: str, choices: Sequence[str] | None = None) -> ConfigError:
        return ConfigError(problem, file=self._file, field="devices", choices=choices)


def load_lab(path: Path, *, places: Callable[[Wanted], FoundPlaces] | None = found_places) -> Lab:
    """Reads devices.yaml, and looks whether this computer can simulate what it leaves to that.

    `places` finds places of labgrid if the lab names one; None leaves them out. Raises one
    ConfigError that names every mistake by file, line, field and valid choices; InfraError if
    labgrid does not answer, NoLabError where there is no such file.
    """
    lab = check_document(
        read_document(path, absent=NoLabError(_NO_FILE, file=path)),
        Lab,
        more=lambda document: (*mistakes_between_fields(document), *mistakes_of_sources(document)),
    )
    lab._file = path
    if any(map(_is_left_to_the_computer, lab.devices)):
        lab._lacking = why_no_board(cache_root() / BOARDS)
    if any(device.dsp and _is_left_to_the_computer(device) for device in lab.devices):
        lab._lacking_of_dsps = why_no_dsp(cache_root() / BOARDS)
    return lab if lab.labgrid is None or places is None else _with_places(lab, lab.labgrid, places)


def shipped_lab(names: Iterable[str]) -> Path | None:
    """The lab of this computer's simulated devices, if it has all of these names.

    Raises ConfigError for a name that can only be meant for one of them.
    """
    known = [device.name for device in load_lab(SIMULATED_LAB).devices]
    unknown = [name for name in names if name not in known]
    for name in unknown:
        if (meant := did_you_mean(name, known)) or name.startswith("sim-"):
            problem = f"this computer simulates no {name!r}{meant}"
            raise ConfigError(problem, field="--device", choices=known)
    return None if unknown else SIMULATED_LAB


def _with_places(lab: Lab, config: LabgridConfig, find: Callable[[Wanted], FoundPlaces]) -> Lab:
    """The lab with the devices of labgrid's places besides its own."""
    try:
        found = find(config.wanted)
    except ConfigError as error:
        raise ConfigError(
            error.problem, file=lab._file, field=error.field, choices=error.choices
        ) from None
    taken: dict[str, FoundPlace] = {}
    devices: list[DeviceConfig] = []
    for place in found.places:
        field = f"labgrid, place {place.name}"
        try:
            device = DeviceConfig.model_validate(described(place, config.device))
        except ValidationError as error:
            said = "; ".join(f"{one['loc'][0]} {one['msg']}" for one in error.errors())
            raise ConfigError(said, file=lab._file, field=field) from None
        except ValueError as error:
            _log.warning(f"place {place.name} of labgrid is left out: {error}")
            continue
        if device.name in taken or device.name in lab._by_name:
            problem = f"is a second device called {device.name}"
            raise ConfigError(problem, file=lab._file, field=field)
        devices.append(device)
        taken[device.name] = FoundPlace(place, found)
    all_of_it = lab.with_devices(devices)
    all_of_it._places = taken
    return all_of_it


def _is_left_to_the_computer(device: DeviceConfig) -> bool:
    return device.enabled == "auto" and device.target == EMULATED_TARGET
