"""devices.yaml: the devices of the lab, their addresses and properties.

Until a device has answered, its address is its only identity. Spellings that mean the same
are one address: `localhost:5555`, `127.0.0.1:05555` and `[::1]:5555`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from harness.core.cache import BOARDS, cache_root
from harness.core.errors import ConfigError, NoLabError
from harness.core.socs import HTP_ARCHS, KERNEL_SOC_IDS, SOCS, TARGETS, Target
from harness.core.yaml_document import (
    Document,
    SchemaOne,
    Text,
    check_document,
    did_you_mean,
    duplicate_names,
    entries_of,
    read_document,
    shown,
)
from harness.dsp.hexagon import DSP_ARCHS, why_no_dsp
from harness.lab.fields import (
    DEVICE_URLS,
    Address,
    Adreno,
    DeviceUrl,
    Dsp,
    Enabled,
    HtpArch,
    LabgridConfig,
    LabName,
    NotifyChannel,
    RuntimeSource,
    Serial,
    SshComputer,
    Word,
    Workdir,
    device_entry,
    parse_device_url,
    ssh_address,
)
from harness.lab.health import HealthRules, RecoveryRules, TimedGate
from harness.labgrid.session import FoundPlace, FoundPlaces, PlaceRequest, found_places
from harness.simulator.board import why_no_board
from harness.transport import this_computer
from harness.transport.adb_address import USER_SERVER, ServerAddress, TcpAddress, UnixAddress
from harness.transport.ssh_connection import SshLogin, login_at

LOCAL: Final = "local"
"""The canonical name of the computer that an address is looked up on."""

_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
# the default port of `adb connect`
_DEFAULT_PORT: Final = 5555
_EMULATOR: Final = re.compile(r"emulator-(\d{4,5})")


def split_address(serial: str) -> tuple[str, str] | None:
    """Return host and port of a serial that is an address, None if it is none.

    An emulator listens for adb on the port after the one in its name.
    """
    emulator = _EMULATOR.fullmatch(serial)
    if emulator is not None:
        return "127.0.0.1", str(int(emulator[1]) + 1)
    if ":" not in serial:
        return None
    if serial.count(":") > 1 and "[" not in serial and _ip(serial) is not None:
        return serial, str(_DEFAULT_PORT)
    host, _, port = serial.rpartition(":")
    is_number = port.isascii() and port.isdigit()
    return host, (port.lstrip("0") or "0") if is_number else port  # int() refuses long ones


def canonical_host(host: str) -> str:
    """Return `local` for this computer's loopback, else one spelling of the host's name (pure).

    Addresses are read as `getaddrinfo` does for adb: leading zeros make a number octal. Of the
    loopback network only 127.0.0.1 is `local`: others may be ends of tunnels to different devices.
    """
    name = host.strip().removeprefix("[").removesuffix("]").rstrip(".").lower()
    address = _ip(name)
    if address is None:
        return LOCAL if name in _LOCAL_NAMES or name.endswith(".localhost") else name
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    text = str(address)
    return LOCAL if address.is_unspecified or text in ("127.0.0.1", "::1") else text


def device_address(serial: str, server_host: str, server_port: int) -> str:
    """Return one name for the device that an adb server knows as `serial`.

    An address on the network means the same device to every server. Serial numbers, and what is on
    the server's own computer, mean something only together with the server: a port of this computer
    may lead to a server far away.
    """
    server = canonical_host(server_host)
    address = split_address(serial)
    if address is None:
        return f"{server}:{server_port}:{serial}"
    host = canonical_host(address[0])
    if host == LOCAL or (_ip(host) or ipaddress.ip_address("0.0.0.0")).is_loopback:
        return f"{server}:{server_port}:{host}:{address[1]}"
    return f"tcp:{host}:{address[1]}"


def service_address(kind: str, host: str, port: int) -> str:
    """Return one name for a server that runs on a device itself, such as sshd."""
    return f"{kind}:{canonical_host(host)}:{port}"


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if re.fullmatch(r"[0-9a-fx.]+", host, re.IGNORECASE) and host[0].isdigit():
        with contextlib.suppress(OSError):
            return ipaddress.IPv4Address(socket.inet_aton(host))
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


SIMULATED_TARGETS: Final = ("linux-x64", "linux-arm64")
EMULATED_TARGET: Final = "linux-arm64"
"""The simulated target whose programs run under qemu."""
PREPARING_TARGET: Final = "linux-x64"
"""The simulated target whose GPU backend can prepare graphs without a GPU."""

DSP_SOCS: Final = tuple(name for name in KERNEL_SOC_IDS if SOCS[name].htp_arch in DSP_ARCHS)
"""The SoCs whose DSP can be simulated: kernels name them, and their skel runs in the emulator."""

ALIKE: Final = (
    *("soc", "htp_arch", "adreno", "target", "tags"),
    *("simulated", "shows_soc", "dsp", "prepares_gpu"),
)
"""The fields that are the same in devices on which a verdict says the same."""
_FORBIDDEN_IF_SIMULATED: Final = ("transport", "serial", "address", "host", "workdir", "power")


def mistakes_between_fields(document: Document) -> Iterator[ConfigError]:
    """Yield mistakes that involve several fields; checks the parts that are well-formed."""
    hosts, devices = entries_of(document, "hosts"), entries_of(document, "devices")
    yield from duplicate_names(document, "hosts", hosts, "name")
    yield from duplicate_names(document, "devices", devices, "name")
    for section in ("notify", "runtimes"):
        yield from duplicate_names(document, section, entries_of(document, section), "name")
    by_ssh = {index: d for index, d in devices.items() if d.get("transport") == "ssh"}
    local = {index: d for index, d in devices.items() if d.get("transport") == "local"}
    others = {index: device for index, device in devices.items() if index not in by_ssh}
    yield from duplicate_names(document, "devices", others, "address")
    yield from duplicate_names(document, "devices", by_ssh, "address", named=_board)
    yield from duplicate_names(document, "devices", local, "transport")
    # The same serial may well exist behind two adb servers.
    yield from duplicate_names(document, "devices", devices, "serial", "host", named=_address)
    yield from _unlike_pools(document, devices)
    named = (host.get("name") for host in hosts.values())
    names = list(dict.fromkeys(name for name in named if isinstance(name, str)))
    for index, host in hosts.items():
        present = [field for field in ("socket", "host", "ssh") if host.get(field) is not None]
        if not present:
            problem = "is missing, and so are `ssh` and `socket`"
            yield document.mistake(("hosts", index, "host"), problem)
        elif present[0] == "socket" and len(present) > 1:
            yield document.mistake(("hosts", index, "socket"), f"stands in place of `{present[1]}`")
    for index, device in devices.items():
        is_simulated = device.get("simulated", False)
        wrong = [*_wrong_host(device, names), *_wrong_soc(device)]
        if is_simulated is True:
            wrong += _wrong_if_simulated(device)
        elif is_simulated is False:
            wrong += _wrong_if_real(device)
        for field, problem, choices in wrong:
            yield document.mistake(("devices", index, field), problem, choices)


def _unlike_pools(
    document: Document, devices: Mapping[int, Mapping[str, object]]
) -> Iterator[ConfigError]:
    """Yield pools whose devices could give different verdicts, or that are named like a device."""
    named = (device.get("name") for device in devices.values())
    names = {name for name in named if isinstance(name, str)}
    first: dict[str, Mapping[str, object]] = {}
    for index, device in devices.items():
        pool = device.get("pool")
        if not isinstance(pool, str):
            continue
        other = first.setdefault(pool, device)
        unlike = [key for key in ALIKE if device.get(key) != other.get(key)]
        problem = None
        if pool in names:
            problem = "is the name of a device, too"
        elif device.get("soc") is None:
            problem = "takes devices whose `soc` is given: a verdict must say the same of each"
        elif unlike:
            problem = f"is that of {other.get('name')}, which has other `{unlike[0]}`"
        if problem is not None:
            yield document.mistake(("devices", index, "pool"), problem)


class _Wrong(NamedTuple):
    field: str
    problem: str
    choices: Sequence[object] | None = None


def _wrong_host(device: Mapping[str, object], names: list[str]) -> Iterator[_Wrong]:
    host = device.get("host")
    if isinstance(host, str) and host not in names:
        yield _Wrong("host", f"no such adb host{did_you_mean(host, names)}", names or ["(none)"])


def _wrong_soc(device: Mapping[str, object]) -> Iterator[_Wrong]:
    soc, arch = SOCS.get(str(device.get("soc"))), device.get("htp_arch")
    if soc is not None and isinstance(arch, int) and arch in HTP_ARCHS and arch != soc.htp_arch:
        actual = f"has HTP v{soc.htp_arch}" if soc.htp_arch else "has no HTP"
        yield _Wrong("htp_arch", f"is {arch}, but {soc.name} {actual}")
    if device.get("prepares_gpu") is True and not (
        device.get("simulated") is True
        and device.get("target", PREPARING_TARGET) == PREPARING_TARGET
    ):
        hint = f"only the GPU backend of a simulated {PREPARING_TARGET} device can be made to"
        yield _Wrong("prepares_gpu", hint)


def _wrong_address(device: Mapping[str, object]) -> Iterator[_Wrong]:
    """Yield what in a real device's address contradicts its transport."""
    transport, address = device.get("transport", "adb"), device.get("address")
    present = [field for field in ("serial", "host") if device.get(field) is not None]
    if transport == "local":
        more = [field for field in ("address", "power") if device.get(field) is not None]
        yield from (
            _Wrong(field, "this computer has none of its own") for field in (*present, *more)
        )
    elif transport == "ssh":
        if address is None:
            yield _Wrong("address", "is missing: where does ssh find it? [user@]host[:port]")
        elif "://" in str(address):
            yield _Wrong("address", "with `transport: ssh` it is [user@]host[:port], without //")
        yield from (_Wrong(field, "`address` says that already") for field in present)
    elif address is not None:
        if transport == "adb" and "://" not in str(address):
            hint = f"must be {' or '.join(DEVICE_URLS)}; [user@]host[:port] needs `transport: ssh`"
            yield _Wrong("address", hint)
        yield from (_Wrong(field, "`address` says that already") for field in present)
    elif "://" in str(device.get("serial")):
        yield _Wrong("serial", "is the address of a device: write it as `address`")
    elif device.get("serial") is None:
        yield _Wrong("serial", "is missing: a device needs one unless it is `simulated: true`")


def _wrong_if_real(device: Mapping[str, object]) -> Iterator[_Wrong]:
    yield from _wrong_address(device)
    if device.get("storage_limit_mb") is not None:
        yield _Wrong("storage_limit_mb", "only a simulated device's storage can be limited")
    if device.get("enabled") == "auto":
        yield _Wrong("enabled", "only a simulated device can be on by itself; use true or false")
    if device.get("shows_soc") is True:
        yield _Wrong("shows_soc", "only a simulated board is told so")
    if device.get("dsp", False) is not False:
        yield _Wrong("dsp", "a real device has its own; only a simulated board is given one")


def _wrong_if_simulated(device: Mapping[str, object]) -> Iterator[_Wrong]:
    for field in _FORBIDDEN_IF_SIMULATED:
        if device.get(field) is not None:
            yield _Wrong(field, "a simulated device has none of its own")
    soc, choices = device.get("soc"), [soc.name for soc in SOCS.values() if soc.htp_arch]
    if soc is None:
        yield _Wrong("soc", "is missing: what shall be simulated?", choices)
    elif isinstance(soc, str) and soc not in choices:
        yield _Wrong("soc", f"cannot be simulated{did_you_mean(soc, choices)}", choices)
    target = device.get("target")
    if target in TARGETS and target not in SIMULATED_TARGETS:
        yield _Wrong("target", "cannot be simulated", SIMULATED_TARGETS)
    if device.get("shows_soc") is True:
        if target != EMULATED_TARGET:
            hint = f"needs target {EMULATED_TARGET}: other simulated devices show this computer's"
            yield _Wrong("shows_soc", hint)
        elif isinstance(soc, str) and soc in choices and soc not in KERNEL_SOC_IDS:
            hint = f"the number that kernels give to {soc} is not known"
            yield _Wrong("shows_soc", hint, list(KERNEL_SOC_IDS))
    if device.get("dsp", False) not in (False, None):
        yield from _wrong_dsp(device, soc if soc in choices else None)


def _wrong_dsp(device: Mapping[str, object], soc: object) -> Iterator[_Wrong]:
    if device.get("target") != EMULATED_TARGET:
        yield _Wrong("dsp", f"needs target {EMULATED_TARGET}: others have no DSP to talk to")
    elif device.get("shows_soc") is False:
        yield _Wrong("shows_soc", "is needed by `dsp`: by the SoC the libraries choose their skel")
    elif soc is not None and soc not in DSP_SOCS:
        yield _Wrong("soc", "no DSP of it can be simulated", DSP_SOCS)


def _board(address: str) -> str:
    login = login_at(address)
    return address if login is None else service_address("ssh", login.host, login.port or 22)


def _address(serial: str) -> str:
    return device_address(serial, LOCAL, 0)


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
        """The address that its server listens on."""
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
        if (location := parse_device_url(str(filled.get("address")))) is not None:
            filled.setdefault("serial", location[1])
        if filled.get("transport") in ("ssh", "local"):
            filled.setdefault("workdir", BOARD_WORKDIR)
        if filled.get("transport") == "local":
            filled.setdefault("serial", this_computer.SERIAL)
        login = login_at(str(filled.get("address"))) if filled.get("transport") == "ssh" else None
        if login is not None:
            filled.setdefault("serial", str(login))
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
    # Mistakes in `labgrid` are reported separately; the key is missing then.
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

    runtimes: tuple[SerializeAsAny[RuntimeSource], ...] = ()
    """Where libraries come from besides the package index, asked in this order."""

    notify: Annotated[tuple[NotifyChannel, ...], Field(exclude=True)] = ()
    """Channels that messages go to; kept in no run, since URLs give access."""

    _file: Path | None = PrivateAttr(None)
    _lacking: str | None = PrivateAttr(None)
    _lacking_of_dsps: str | None = PrivateAttr(None)
    _places: Mapping[str, FoundPlace] = PrivateAttr(default_factory=dict)

    def why_off(self, device: DeviceConfig) -> str | None:
        """Return why a device is not used; None if it is."""
        if _is_left_to_the_computer(device):
            lacking = self._lacking or (device.dsp and self._lacking_of_dsps)
            if lacking:
                return f"is off: {lacking}"
        return None if device.enabled else "is disabled"

    def in_use(self) -> list[DeviceConfig]:
        """Return the enabled devices, which may be none."""
        return [device for device in self.devices if self.why_off(device) is None]

    def select(self, names: Iterable[str] | None = None) -> list[DeviceConfig]:
        """Return the devices of these names, in the given order, each once; None: all enabled.

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
            enabled = [other.name for other in self.in_use()]
            why = why_off or f"is not in the lab{did_you_mean(name, enabled)}"
            raise self._problem(f"device {shown(name)!r} {why}", choices=enabled)
        return device

    @cached_property
    def _by_name(self) -> Mapping[str, DeviceConfig]:
        return {device.name: device for device in self.devices}

    def place_of(self, name: str) -> FoundPlace | None:
        """Return the labgrid place of a device; None if it belongs to none."""
        return self._places.get(name)

    def health_of(self, device: DeviceConfig) -> HealthRules:
        """Return the health rules of a device."""
        return device.health or self.health

    def recovery_of(self, device: DeviceConfig) -> RecoveryRules:
        """Return the recovery rules of a device."""
        return device.recovery or self.recovery

    def gate_of(self, device: DeviceConfig) -> TimedGate | None:
        """Return the gate of timed cases on a device, None if they need not wait."""
        return device.gate or (None if device.simulated else self.gate)

    @property
    def folder(self) -> Path:
        return self._file.absolute().parent if self._file else Path.cwd()

    def host(self, name: str) -> AdbHost:
        """Return the adb host of that name. Raises ConfigError if there is none."""
        hosts = {host.name: host for host in self.hosts}
        if name not in hosts:
            problem = f"adb host {name!r} is not in the lab"
            raise ConfigError(problem, file=self._file, field="hosts", choices=list(hosts))
        return hosts[name]

    def with_devices(self, more: Iterable[DeviceConfig]) -> Lab:
        """Return the lab with more devices."""
        lab = self.model_copy(update={"devices": (*self.devices, *more)})
        lab.__dict__.pop("_by_name", None)  # the copy has that of this one
        return lab

    def server_of(self, device: DeviceConfig) -> ServerAddress:
        """Return the address of a real device's adb server. Raises ConfigError."""
        if device.address is not None and (place := parse_device_url(device.address)) is not None:
            return place[0]
        return USER_SERVER if device.host is None else self.host(device.host).address

    def address_of(self, device: DeviceConfig) -> str:
        """Return the canonical address of a real device. Raises ConfigError."""
        if device.transport == "local":
            return LOCAL
        if (login := device.login) is not None:
            return service_address("ssh", login.host, login.port or 22)
        server = self.server_of(device)
        return device_address(device.serial or "", server.host, server.port)

    def _problem(self, problem: str, choices: Sequence[str] | None = None) -> ConfigError:
        return ConfigError(problem, file=self._file, field="devices", choices=choices)


def load_lab(
    path: Path, *, places: Callable[[PlaceRequest], FoundPlaces] | None = found_places
) -> Lab:
    """Read devices.yaml, and find out which `enabled: auto` devices this computer can simulate.

    `places` finds places of labgrid if the lab names one; None leaves them out. Raises one
    ConfigError that names every mistake by file, line, field and valid choices; InfraError if
    labgrid does not answer, NoLabError where there is no such file.
    """
    lab = check_document(
        read_document(path, absent=NoLabError(_NO_FILE, file=path)),
        Lab,
        more=mistakes_between_fields,
    )
    lab._file = path
    if any(map(_is_left_to_the_computer, lab.devices)):
        lab._lacking = why_no_board(cache_root() / BOARDS)
    if any(device.dsp and _is_left_to_the_computer(device) for device in lab.devices):
        lab._lacking_of_dsps = why_no_dsp(cache_root() / BOARDS)
    return lab if lab.labgrid is None or places is None else _with_places(lab, lab.labgrid, places)


def shipped_lab(names: Iterable[str]) -> Path | None:
    """Return the lab of this computer's simulated devices, if it has all of these names.

    Raises ConfigError for a name that can only be meant for one of them.
    """
    known = [device.name for device in load_lab(SIMULATED_LAB).devices]
    unknown = [name for name in names if name not in known]
    for name in unknown:
        if (hint := did_you_mean(name, known)) or name.startswith("sim-"):
            problem = f"this computer simulates no {name!r}{hint}"
            raise ConfigError(problem, field="--device", choices=known)
    return None if unknown else SIMULATED_LAB


def _with_places(
    lab: Lab, config: LabgridConfig, find: Callable[[PlaceRequest], FoundPlaces]
) -> Lab:
    """Return the lab with the devices of labgrid's places added to its own."""
    try:
        search = find(config.request)
    except ConfigError as error:
        raise ConfigError(
            error.problem, file=lab._file, field=error.field, choices=error.choices
        ) from None
    found_places: dict[str, FoundPlace] = {}
    devices: list[DeviceConfig] = []
    for place in search.places:
        field = f"labgrid, place {place.name}"
        try:
            device = DeviceConfig.model_validate(device_entry(place, config.device))
        except ValidationError as error:
            message = "; ".join(f"{detail['loc'][0]} {detail['msg']}" for detail in error.errors())
            raise ConfigError(message, file=lab._file, field=field) from None
        except ValueError as error:
            _log.warning(f"place {place.name} of labgrid is left out: {error}")
            continue
        if device.name in found_places or device.name in lab._by_name:
            problem = f"is a second device called {device.name}"
            raise ConfigError(problem, file=lab._file, field=field)
        devices.append(device)
        found_places[device.name] = FoundPlace(place, search)
    extended = lab.with_devices(devices)
    extended._places = found_places
    return extended


def _is_left_to_the_computer(device: DeviceConfig) -> bool:
    return device.enabled == "auto" and device.target == EMULATED_TARGET
