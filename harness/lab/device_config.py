"""The entries of `devices` in devices.yaml, of several kinds; their addresses and adb servers.

Until a device has answered, its address is its only identity: `localhost:5555` and `127.0.0.1:5555`
are one.
"""

from __future__ import annotations

import contextlib
import ipaddress
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Protocol

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from harness.core.socs import KERNEL_SOC_IDS, SOCS, Target
from harness.core.yaml_document import Name, Text, did_you_mean
from harness.dsp.emulator import DSP_ARCHS
from harness.lab.config_fields import (
    Address,
    Adreno,
    DeviceUrl,
    Dsp,
    DspFields,
    Enabled,
    HtpArch,
    Serial,
    SshComputer,
    Word,
    Workdir,
    parse_device_url,
    ssh_address,
)
from harness.lab.health import HealthRules, RecoveryRules, TimedGate
from harness.lab.tagged_union import TaggedModel
from harness.transport import this_computer
from harness.transport.adb_address import (
    USER_SERVER,
    ServerAddress,
    TcpAddress,
    UnixAddress,
    has_address,
    is_loopback,
)
from harness.transport.device import Transport
from harness.transport.ssh_connection import SshLogin, login_at

LOCAL: Final = "local"
"""The canonical name of the computer that an address is looked up on."""


def canonical_host(host: str) -> str:
    """Return `local` for this computer's loopback, else one spelling of the host's name (pure).

    Of the loopback network only 127.0.0.1 is `local`: others may be ends of tunnels to different
    devices.
    """
    name = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    with contextlib.suppress(ValueError):
        name = str(ipaddress.ip_address(name))
    return LOCAL if name in ("localhost", "127.0.0.1", "::1") else name


def device_address(serial: str, server_host: str, server_port: int) -> str:
    """Return one name for the device that an adb server knows as `serial`.

    An address on the network means the same device to every server. Serial numbers, and what is on
    the server's own computer, mean something only together with the server: a port of this computer
    may lead to a server far away.
    """
    server = canonical_host(server_host)
    host, colon, port = serial.rpartition(":")
    name = canonical_host(host)
    if not colon:
        return f"{server}:{server_port}:{serial}"
    if name == LOCAL or is_loopback(name):
        return f"{server}:{server_port}:{name}:{port}"
    return f"tcp:{name}:{port}"


def sshd_name(host: str, port: int) -> str:
    """Return one name for the sshd of a computer or of a device, however its host is spelled."""
    return f"ssh:{canonical_host(host)}:{port}"


EMULATED_TARGET: Final = "linux-arm64"
"""The simulated target whose programs run under qemu."""
PREPARING_TARGET: Final = "linux-x64"
"""The simulated target whose GPU backend can prepare graphs without a GPU."""

SIMULATED_SOCS: Final = tuple(soc.name for soc in SOCS.values() if soc.htp_arch)
DSP_SOCS: Final = tuple(name for name in KERNEL_SOC_IDS if SOCS[name].htp_arch in DSP_ARCHS)
"""The SoCs whose DSP can be simulated: kernels name them, and their skel runs in the emulator."""

ALIKE: Final = (
    *("soc", "htp_arch", "adreno", "target", "tags"),
    *("simulated", "shows_soc", "dsp", "prepares_gpu"),
)
"""The fields that are the same in devices on which a verdict says the same."""

DEFAULT_WORKDIR: Final = "/data/local/tmp/qnn-harness"
BOARD_WORKDIR: Final = "/var/tmp/qnn-harness"
"""With another transport: every account may write there, and it outlives a reboot."""


class AdbHost(BaseModel, extra="forbid", frozen=True):
    """An adb server on another machine, or on another port of this one."""

    name: Name
    """The name that `host` of a device refers to."""

    host: Address = "127.0.0.1"
    """Host name or IP address; with `ssh`, as seen from there."""

    port: Annotated[StrictInt, Field(ge=1, le=65535)] = 5037
    """The port of the server."""

    ssh: SshComputer | None = None
    """The computer, as [user@]host[:port], that ssh reaches it through."""

    socket: Annotated[Workdir, Field(max_length=107)] | None = None
    """The Unix socket of a server on this computer, instead of `host` and `port`."""

    @property
    def address(self) -> ServerAddress:
        """The address that its server listens on."""
        if self.socket is not None:
            return UnixAddress(self.socket)
        behind_ssh = ssh_address(self.ssh, self.host, self.port) if self.ssh else None
        return behind_ssh or TcpAddress(self.host, self.port)


def _wrong(problem: str, choices: Iterable[object] | None = None) -> PydanticCustomError:
    listed = {} if choices is None else {"choices": list(choices)}
    return PydanticCustomError("device", "{problem}", {"problem": problem, **listed})


def _simulated_soc(soc: str) -> str:
    if soc not in SIMULATED_SOCS:
        raise _wrong(f"cannot be simulated{did_you_mean(soc, SIMULATED_SOCS)}", SIMULATED_SOCS)
    return soc


class Hosts(Protocol):
    """The part of a lab that its devices' entries refer to."""

    def host(self, name: str) -> AdbHost:
        """Return the adb host of that name. Raises ConfigError if there is none."""
        ...


class LabInUse(Protocol):
    """The parts of the lab in use that its devices are reached with."""

    @property
    def described(self) -> Hosts: ...

    def start_simulated(self, config: SimulatedDeviceConfig) -> Transport:
        """Start a simulated device unless it runs. Raises InfraError."""
        ...


class DevicePlace(Protocol):
    """The state of a device in its source: its power, and if it may be used now."""

    @property
    def name(self) -> str: ...

    @property
    def lease_key(self) -> str | None:
        """A key to lease besides the device's own."""
        ...

    def why_not(self) -> str | None:
        """Return why the device must not be used, None if it may be."""
        ...

    @property
    def has_power_port(self) -> bool: ...

    def power_cycle(self) -> None:
        """Switch it off and on. Raises InfraError."""
        ...


class SourceDevice(NamedTuple):
    """A device of a source; `entry` is as in `devices`."""

    entry: Mapping[str, object]
    place: DevicePlace


class DeviceSource(BaseModel):
    """A section of devices.yaml by which devices are found, and reserved for a run.

    `section` is its key. Its methods raise ConfigError for a mistake in it, InfraError if there are
    no devices to be had.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    section: ClassVar[str]

    @property
    @abstractmethod
    def most(self) -> int:
        """The most devices that a run reserves."""

    @abstractmethod
    def find(self) -> Iterable[SourceDevice]:
        """Return the devices that this process's run has; without a run, all that it could have."""

    @abstractmethod
    def reserve(self, until: ExitStack) -> Iterable[SourceDevice]:
        """Reserve devices until that stack is closed, and return them."""


class DeviceConfig(TaggedModel):
    """One device of the lab, as described; what is not said is asked of the device.

    There is a subclass for each `transport`, with the fields that lead to the device; the hook
    `qnn_transports` returns them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    tag = "transport"
    hook = "qnn_transports"
    others = (DeviceSource,)

    name: Name
    """The name of the device in options and reports."""

    transport: Text
    """The connection to the device (default: `simulated` if that is true, else `adb`)."""

    simulated: Annotated[StrictBool, WithJsonSchema({"const": False})] = False
    """True for a simulated device, which the harness starts."""

    soc: Word | None = None
    """The SoC's name, e.g. QCS8550; what shall be simulated, or what the device does not tell."""

    htp_arch: HtpArch | None = None
    """73 for HTP v73; by default that of the SoC."""

    target: Target | None = None
    """The target of its libraries (default: as the device reports)."""

    adreno: Adreno | None = None
    """Model number of its GPU; by default that of the SoC, else the device is asked."""

    workdir: Workdir = BOARD_WORKDIR
    """The folder on the device that the harness keeps to."""

    pool: Name | None = None
    """Devices of one pool share cases: each runs once, on whichever of them is free."""

    enabled: StrictBool = True
    """False: the device is not used."""

    tags: tuple[Word, ...] = ()
    """Words of your own that tests can require."""

    shared: bool | None = None
    """True: other computers use the device, too, so leases are kept on it. The default is true if
    its adb server is another computer's, its serial a network address, or it is reached by ssh.
    """

    store_limit_mb: Annotated[StrictInt, Field(ge=1)] | None = None
    """The most storage for deployed files, in 10^6 bytes (default: half of the free storage)."""

    health: HealthRules | None = None
    """Its own rules in place of the lab's."""

    recovery: RecoveryRules | None = None
    """Its own rules in place of the lab's."""

    power: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    """A command for sh on this computer that switches it off and on; 0: done. It is the last step
    that may bring it back."""

    gate: TimedGate | None = None
    """Its own in place of the lab's; a simulated device has none unless it is given here."""

    can_reboot: ClassVar[bool] = True
    """True if such devices can be rebooted."""

    @abstractmethod
    def open(self, lab: LabInUse) -> Transport:
        """Return the transport to it, without connecting. Raises ConfigError."""

    def location(self, lab: Hosts) -> str:
        """Return one name for the device, however its entry spells that. Raises ConfigError.

        By default the transport and its own fields: entries that agree in these are one device.
        """
        fields = type(self).model_fields.keys() - DeviceConfig.model_fields.keys()
        return " ".join((self.transport, *(str(getattr(self, name)) for name in sorted(fields))))

    def server(self, lab: Hosts) -> ServerAddress | None:
        """Return the address of its adb server; None if it has none. Raises ConfigError."""
        return None

    def is_shared(self, lab: Hosts) -> bool:
        """Return whether other computers may reach it, too; False by default. Raises ConfigError.

        Its entry may say otherwise by `shared`.
        """
        return False

    def has_own_lease(self, lab: Hosts) -> bool:
        """Return whether leases are kept on it besides, by its programs `flock` and `timeout`."""
        return self.is_shared(lab) if self.shared is None else self.shared

    @property
    def store_limit_bytes(self) -> int | None:
        return None if self.store_limit_mb is None else self.store_limit_mb * 1_000_000

    @classmethod
    def kind_in(cls, entry: Mapping[str, object]) -> object:
        """As `TaggedModel.kind_in`: adb, or simulated, where there is no `transport`."""
        return "simulated" if entry.get("simulated") is True else entry.get("transport") or "adb"

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return defaults that depend on other fields."""
        soc = SOCS.get(str(given.get("soc")))
        return {} if soc is None else {"htp_arch": soc.htp_arch, "adreno": soc.adreno}

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = {key: value for key, value in data.items() if value is not None}
        return cls._defaults(given) | given

    @field_validator("htp_arch")
    @classmethod
    def _check_arch(cls, arch: int | None, info: ValidationInfo) -> int | None:
        soc = SOCS.get(info.data.get("soc") or "")
        if soc is not None and arch != soc.htp_arch:
            actual = f"has HTP v{soc.htp_arch}" if soc.htp_arch else "has no HTP"
            raise _wrong(f"is {arch}, but {soc.name} {actual}")
        return arch


class AdbDeviceConfig(DeviceConfig):
    """A device on an adb server: a phone, or a board with adbd."""

    transport: Literal["adb"] = "adb"
    """May be left out."""

    workdir: Workdir = DEFAULT_WORKDIR
    """The folder on the device that the harness keeps to."""

    address: DeviceUrl | None = None
    """The address, instead of `serial` and `host`: adb://host:port/serial, or ssh://user@host/serial
    for an adb server behind ssh."""

    serial: Annotated[Serial, Field(validate_default=True)] = ""
    """The serial that `adb devices` prints, or host:port of an adbd on the network."""

    host: Name | None = None
    """The entry of `hosts` with its adb server (default: that of this computer)."""

    @field_validator("serial", mode="before")
    @classmethod
    def _read_serial(cls, serial: object, info: ValidationInfo) -> object:
        place = parse_device_url(info.data.get("address") or "")
        if place is not None:
            if serial:
                raise _wrong("cannot be combined with `address`")
            return place[1]
        if serial == "" and "address" in info.data:
            problem = "is missing: a device needs one unless it is `simulated: true`"
            raise PydanticCustomError("missing", "{problem}", {"problem": problem})
        if "://" in str(serial):
            raise _wrong("is the address of a device; set `address` instead")
        return serial or "unknown"

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str | None, info: ValidationInfo) -> str | None:
        if host is not None and info.data.get("address") is not None:
            raise _wrong("cannot be combined with `address`")
        return host

    def server(self, lab: Hosts) -> ServerAddress:
        if self.address is not None and (place := parse_device_url(self.address)) is not None:
            return place[0]
        return USER_SERVER if self.host is None else lab.host(self.host).address

    def location(self, lab: Hosts) -> str:
        server = self.server(lab)
        return device_address(self.serial, server.host, server.port)

    def is_shared(self, lab: Hosts) -> bool:
        host = self.serial.rpartition(":")[0].strip("[]")
        is_network = has_address(self.serial) and not is_loopback(host)
        return is_network or not self.server(lab).is_here

    def open(self, lab: LabInUse) -> Transport:
        from harness.transport.adb_device import AdbDevice
        from harness.transport.adb_server import AdbServer

        return AdbDevice(self.serial, AdbServer(self.server(lab.described)))


class SshDeviceConfig(DeviceConfig):
    """A board with sshd, without adb."""

    transport: Literal["ssh"]

    address: Annotated[SshComputer, Field(examples=["[user@]host[:port]"])]
    """[user@]host[:port], or a name of ssh's own."""

    @property
    def login(self) -> SshLogin:
        login = login_at(self.address)
        assert login is not None
        return login

    @property
    def serial(self) -> str:
        return str(self.login)

    def location(self, lab: Hosts) -> str:
        return sshd_name(self.login.host, self.login.port or 22)

    def is_shared(self, lab: Hosts) -> bool:
        return True

    def open(self, lab: LabInUse) -> Transport:
        from harness.transport.ssh_board import SshBoard

        return SshBoard(self.login)


class LocalDeviceConfig(DeviceConfig):
    """This computer itself."""

    transport: Literal["local"]

    power: ClassVar[None] = None  # type: ignore[misc]  # no field of this kind
    serial: ClassVar[str] = this_computer.SERIAL
    can_reboot = False

    def location(self, lab: Hosts) -> str:
        return LOCAL

    def open(self, lab: LabInUse) -> Transport:
        return this_computer.ThisComputer()


class SimulatedDeviceConfig(DeviceConfig):
    """A device that the harness starts itself."""

    transport: Literal["simulated"] = "simulated"
    """May be left out."""

    simulated: Literal[True] = True
    """May stand in place of `transport: simulated`."""

    soc: Annotated[Word, AfterValidator(_simulated_soc), Field(examples=list(SIMULATED_SOCS))]
    """The SoC that shall be simulated."""

    target: Literal["linux-x64", "linux-arm64"] = "linux-x64"
    """The target of its libraries; programs for linux-arm64 run under qemu."""

    workdir: ClassVar[str] = DEFAULT_WORKDIR  # type: ignore[misc]  # no field of this kind
    power: ClassVar[None] = None  # type: ignore[misc]

    enabled: Enabled = True  # type: ignore[assignment]
    """False: the device is not used. `auto`: used if this computer can simulate it."""

    dsp: Dsp = None
    """True for a linux-arm64 board with a DSP, or the limits of its DSP."""

    shows_soc: StrictBool = False
    """True: a linux-arm64 board reports its SoC in /sys, as kernels of real boards do."""

    prepares_gpu: StrictBool | None = None
    """False: the GPU backend of a linux-x64 device does not prepare graphs."""

    storage_limit_mb: Annotated[StrictInt, Field(ge=1)] | None = None
    """The size of its storage, in 10^6 bytes (default: that of this computer)."""

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        target = given.get("target", PREPARING_TARGET)
        shows_soc = given.get("dsp", False) is not False and target == EMULATED_TARGET
        more = {"shows_soc": shows_soc, "prepares_gpu": target == PREPARING_TARGET}
        return super()._defaults(given) | more

    @field_validator("dsp")
    @classmethod
    def _check_dsp(cls, dsp: DspFields | None, info: ValidationInfo) -> DspFields | None:
        if dsp is not None and info.data.get("target", EMULATED_TARGET) != EMULATED_TARGET:
            raise _wrong(f"needs target {EMULATED_TARGET}: only its DSP can be emulated")
        if dsp is not None and (soc := info.data.get("soc")) not in (None, *DSP_SOCS):
            raise _wrong(f"the DSP of {soc} cannot be simulated", DSP_SOCS)
        return dsp

    @field_validator("shows_soc")
    @classmethod
    def _check_shown(cls, is_shown: bool, info: ValidationInfo) -> bool:
        soc, target = info.data.get("soc"), info.data.get("target", EMULATED_TARGET)
        if not is_shown and info.data.get("dsp") is not None:
            raise _wrong("must be true with `dsp`: libraries choose their skel by the SoC")
        if is_shown and target != EMULATED_TARGET:
            hint = "other simulated devices show the SoC of this computer"
            raise _wrong(f"needs target {EMULATED_TARGET}: {hint}")
        if is_shown and "dsp" in info.data and soc not in (None, *KERNEL_SOC_IDS):
            raise _wrong(f"the kernel's soc_id of {soc} is unknown", KERNEL_SOC_IDS)
        return is_shown

    @field_validator("prepares_gpu")
    @classmethod
    def _check_prepares(cls, prepares: bool | None, info: ValidationInfo) -> bool | None:
        if prepares and info.data.get("target", PREPARING_TARGET) != PREPARING_TARGET:
            raise _wrong(
                f"needs target {PREPARING_TARGET}: only its GPU backend can prepare graphs"
            )
        return prepares

    def open(self, lab: LabInUse) -> Transport:
        """As `DeviceConfig.open`; the device is started."""
        return lab.start_simulated(self)


KINDS: Final = (AdbDeviceConfig, SshDeviceConfig, LocalDeviceConfig, SimulatedDeviceConfig)
"""The kinds of devices that are built in."""
