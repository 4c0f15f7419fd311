"""devices.yaml: the lab, its devices, and mistakes that concern several entries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain, count
from operator import methodcaller
from pathlib import Path
from typing import Annotated, Any, Final, TypeGuard

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    create_model,
)

from harness.core import hooks
from harness.core.errors import ConfigError, InfraError, NoLabError, plugin_faults
from harness.core.json_record import Schema1
from harness.core.state_folders import BOARDS, cache_root
from harness.core.yaml_document import (
    Document,
    check_document,
    did_you_mean,
    duplicate_names,
    entries_of,
    read_document,
    shown,
)
from harness.dsp.emulator import why_no_dsp
from harness.lab.config_fields import DEVICE_URLS, RuntimeSource, parse_device_url
from harness.lab.device_config import (
    ALIKE,
    EMULATED_TARGET,
    LOCAL,
    AdbHost,
    DeviceConfig,
    DevicePlace,
    DeviceSource,
    SimulatedDeviceConfig,
    SourceDevice,
    device_address,
    sshd_name,
)
from harness.lab.health import HealthRules, RecoveryRules, TimedGate
from harness.lab.tagged_union import listed
from harness.notify.channels import NotifyChannel
from harness.simulator.board import why_no_board
from harness.transport.adb_server import AdbServer
from harness.transport.ssh_connection import login_at


def mistakes_between_fields(document: Document) -> Iterator[ConfigError]:
    """Yield mistakes that involve several fields; checks the parts that are well-formed."""
    hosts, devices = entries_of(document, "hosts"), entries_of(document, "devices")
    sections = document.value if isinstance(document.value, dict) else {}
    if sections.get("devices") == [] and all(sections.get(n) is None for n in device_sources()):
        yield document.mistake(("devices",), "must list at least one device")
    yield from duplicate_names(document, "hosts", hosts, "name")
    yield from duplicate_names(document, "devices", devices, "name")
    for section in ("notify", "runtimes"):
        yield from duplicate_names(document, section, entries_of(document, section), "name")
    by_adb = {index: d for index, d in devices.items() if d.get("transport") in (None, "adb")}
    by_ssh = {index: d for index, d in devices.items() if d.get("transport") == "ssh"}
    local = {index: d for index, d in devices.items() if d.get("transport") == "local"}
    yield from duplicate_names(document, "devices", by_adb, "address")
    yield from duplicate_names(document, "devices", by_ssh, "address", named=_board)
    yield from duplicate_names(document, "devices", local, "transport")
    # The same serial may well exist behind two adb servers.
    yield from duplicate_names(document, "devices", by_adb, "serial", "host", named=_address)
    yield from _unlike_pools(document, devices)
    named = (host.get("name") for host in hosts.values())
    names = list(dict.fromkeys(name for name in named if isinstance(name, str)))
    for index, host in hosts.items():
        present = [field for field in ("socket", "host", "ssh") if host.get(field) is not None]
        if not present:
            problem = "is missing; set `host`, `ssh` or `socket`"
            yield document.mistake(("hosts", index, "host"), problem)
        elif present[0] == "socket" and len(present) > 1:
            yield document.mistake(
                ("hosts", index, "socket"), f"cannot be combined with `{present[1]}`"
            )
    for index, device in by_adb.items():
        name = device.get("host")
        if isinstance(name, str) and name not in names:
            hint = did_you_mean(name, names) if names else "; the lab has no `hosts`"
            yield document.mistake(("devices", index, "host"), f"unknown adb host{hint}", names)


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
            problem = "is also the name of a device"
        elif device.get("soc") is None:
            problem = "needs a `soc` in each of its devices: a verdict counts for all of them"
        elif unlike:
            problem = f"is also the pool of {other.get('name')}, which has another `{unlike[0]}`"
        if problem is not None:
            yield document.mistake(("devices", index, "pool"), problem)


def _board(address: str) -> str:
    login = login_at(address)
    return address if login is None else sshd_name(login.host, login.port or 22)


def _address(serial: str) -> str:
    return device_address(serial, LOCAL, 0)


SIMULATED_LAB: Final = Path(__file__).with_name("simulated.yaml")
"""A lab of this computer's simulated devices, for those who have not described theirs yet.

Who names none of them gets the first.
"""

_NO_FILE: Final = (
    "does not exist; `qnn-harness init` writes it for the attached devices, `qnn-harness init "
    "--simulated` for a simulated one; --lab=FILE names another. pytest, `run` and `bisect` also "
    "work without it on simulated devices: --device sim-v73"
)
_NO_NAMED_FILE: Final = "does not exist; name a file that `qnn-harness init` wrote, or one like it"


class Lab(BaseModel):
    """All that devices.yaml says."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, serialize_by_alias=True, defer_build=True
    )

    schema_number: Schema1
    """The version of the file's format."""

    hosts: tuple[AdbHost, ...] = ()
    """Adb servers other than this computer's own."""

    devices: tuple[SerializeAsAny[DeviceConfig], ...]
    """The devices, one or more; `[]` only beside a section by which devices are found."""

    health: HealthRules = HealthRules()
    """From when on a device is suspect or bad."""

    recovery: RecoveryRules = RecoveryRules()
    """The means to recover a device."""

    gate: TimedGate = TimedGate()
    """The conditions before a case marked `wait_until_idle`."""

    runtimes: tuple[SerializeAsAny[RuntimeSource], ...] = ()
    """Sources of libraries besides PyPI, in the order of the search."""

    notify: Annotated[tuple[NotifyChannel, ...], Field(exclude=True)] = ()
    """Channels that messages go to; kept in no run, since URLs give access."""

    _file: Path | None = PrivateAttr(None)
    _lacking: str | None = PrivateAttr(None)
    _lacking_of_dsps: str | None = PrivateAttr(None)
    _places: Mapping[str, DevicePlace] = PrivateAttr(default_factory=dict)
    _undescribed: Sequence[str] = PrivateAttr(())

    def why_off(self, device: DeviceConfig) -> str | None:
        """Return why a device is not used; None if it is."""
        if _is_left_to_the_computer(device):
            lacking = self._lacking or (self._lacking_of_dsps if device.dsp else None)
            if lacking:
                return f"is off: {lacking}"
        return None if device.enabled else "is disabled"

    def enabled_devices(self) -> list[DeviceConfig]:
        """Return the enabled devices, which may be none."""
        return [device for device in self.devices if self.why_off(device) is None]

    def select(self, names: Iterable[str] | None = None) -> list[DeviceConfig]:
        """Return the devices of these names, in the given order, each once; None: all enabled.

        Raises ConfigError for a name that the lab does not have or that is off, saying why, and
        if no device is enabled.
        """
        if names is None:
            if not (enabled := self.enabled_devices()):
                raise self._problem("no device is enabled")
            return enabled[:1] if self._file == SIMULATED_LAB else enabled
        return [self._enabled_device(name) for name in dict.fromkeys(names)]

    def _enabled_device(self, name: str) -> DeviceConfig:
        device = self.find(name)
        why_off = None if device is None else self.why_off(device)
        if device is None or why_off is not None:
            enabled = [other.name for other in self.enabled_devices()]
            hint = did_you_mean(name, enabled)
            if not (why_off or hint or name.startswith("sim-")):
                hint = f" and not attached: {_attached_text()}"
            why = why_off or f"is not in the lab{hint}"
            raise self._problem(f"{_device_text(name)} {why}", choices=enabled)
        return device

    @cached_property
    def _by_name(self) -> Mapping[str, DeviceConfig]:
        """The devices by their names, and by the serials that adb knows them by."""
        by_serial = {getattr(device, "serial", ""): device for device in self.devices}
        named_so = {free_name(serial, "", ()): device for serial, device in by_serial.items()}
        return named_so | by_serial | {device.name: device for device in self.devices}

    def find(self, name: str) -> DeviceConfig | None:
        """Return the device of a name, serial or address; None if the lab does not have it."""
        if (place := parse_device_url(name)) is None:
            return self._by_name.get(name)
        location = device_address(place[1], place[0].host, place[0].port)
        return next((each for each in self.devices if each.location(self) == location), None)

    @property
    def sources(self) -> list[DeviceSource]:
        """The sections by which devices are found."""
        return [value for _, value in self if isinstance(value, DeviceSource)]

    def place_of(self, name: str) -> DevicePlace | None:
        """Return the place of a device that a source found; None for another."""
        return self._places.get(name)

    @property
    def undescribed_devices(self) -> list[DeviceConfig]:
        """The devices that devices.yaml does not list, of which only the address is known."""
        return self.select(self._undescribed)

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
        """Return the lab with more devices, which replace those of the same name."""
        devices = {device.name: device for device in (*self.devices, *more)}
        lab = self.model_copy(update={"devices": tuple(devices.values())})
        lab.__dict__.pop("_by_name", None)  # the copy has that of this one
        return lab

    def _problem(self, problem: str, choices: Sequence[str] | None = None) -> ConfigError:
        return ConfigError(problem, file=self._file, field="devices", choices=choices)


def device_sources() -> dict[str, type[DeviceSource]]:
    """Return the sources of devices by their sections. Raises ConfigError as `kinds` does."""
    sources: dict[str, type[DeviceSource]] = {}
    for plugin, models in hooks.results(DeviceConfig.hook):
        for model in listed(models):
            if isinstance(model, type) and issubclass(model, DeviceSource):
                section = getattr(model, "section", "")
                is_free = section and section not in Lab.model_fields
                if not is_free or sources.setdefault(section, model) is not model:
                    problem = f"{model.__name__} needs a `section` that no other has"
                    raise ConfigError(f"plug-in {plugin}: {problem}")
    return sources


def lab_model() -> type[Lab]:
    """Return the model of devices.yaml with the sections of all sources."""
    return _model_with(tuple(device_sources().values()))


@cache
def _model_with(sources: Sequence[type[DeviceSource]]) -> type[Lab]:
    fields: Any = {
        source.section: (source | None, Field(None, description=source.__doc__))
        for source in sources
    }
    return create_model("Lab", __base__=Lab, __doc__=Lab.__doc__, **fields)


def free_name(model: str, target: str, used_names: Collection[str | None]) -> str:
    """Return a new name: the model in lower case, with a number if that is in use (pure)."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.lower(), flags=re.ASCII).strip("-")[:40]
    plain = plain.strip("-") or ("board" if target.startswith("linux") else "phone")
    names = chain([plain], (f"{plain}-{number}" for number in count(2)))
    return next(name for name in names if name not in used_names)


def _attached_serial(name: str) -> str | None:
    """Return the serial that this computer's adb server lists for a serial or a name made of it."""
    server = AdbServer()
    serials = [seen.serial for seen in server.devices()] if server.is_running() else []
    return next((serial for serial in serials if name in (serial, free_name(serial, "", ()))), None)


def _attached_text() -> str:
    try:
        serials = ", ".join(seen.serial for seen in AdbServer().devices())
    except InfraError as error:
        return str(error)
    return f"`adb devices` lists {serials or 'no device'}"


def _device_text(name: str) -> str:
    origin = " of ANDROID_SERIAL" if name == os.environ.get("ANDROID_SERIAL") else ""
    return f"device {shown(name)!r}{origin}"


def _with_named(lab: Lab, names: Iterable[str]) -> Lab:
    """Return the lab with the devices that are named by address, or by serial if attached."""
    for name in names:
        used_names = {each for device in lab.devices for each in (device.name, device.pool)}
        if name in used_names or lab.find(name) is not None:
            continue
        if (place := parse_device_url(name)) is not None:
            entry = {"name": free_name(place[1], "", used_names), "address": name}
        elif "://" in name:
            problem = f"{shown(name)!r} is not the address of a device"
            raise ConfigError(problem, field="--device", choices=DEVICE_URLS)
        elif (serial := _attached_serial(name)) is not None:
            entry = {"name": free_name(serial, "", used_names), "serial": serial}
        elif lab._file in (None, SIMULATED_LAB) and not name.startswith("sim-"):
            problem = f"{_device_text(name)} is not attached: {_attached_text()}"
            raise NoLabError(f"{problem}. For its lab: --lab=FILE; to simulate: --device sim-v73")
        else:
            continue
        lab = lab.with_devices([DeviceConfig.model_validate(entry)])
        lab._undescribed = (*lab._undescribed, entry["name"])
    return lab


def load_lab(
    path: Path,
    *,
    names: Collection[str] = (),
    find: Callable[[DeviceSource], Iterable[SourceDevice]] | None = methodcaller("find"),
) -> Lab:
    """Read devices.yaml, and find out which `enabled: auto` devices this computer can simulate.

    `find` finds devices of the lab's sources; None leaves them out. Raises one ConfigError that
    names every mistake by file, line, field and valid choices; InfraError if a source does not
    answer, NoLabError where there is no such file. Devices that are named by address, and attached
    ones that are named by serial, are part of the lab; if they are all of the names, there need be
    no devices.yaml.
    """
    is_default = path.name == "devices.yaml"
    if names and is_default and not path.exists():
        lab = _with_named(Lab.model_validate({"schema": 1, "devices": []}), names)
        if all(lab.find(name) is not None for name in names):
            return lab
    absent = NoLabError(_NO_FILE if is_default else _NO_NAMED_FILE, file=path)
    lab = check_document(
        read_document(path, absent=absent), lab_model(), more=mistakes_between_fields
    )
    lab._file = path
    if any(map(_is_left_to_the_computer, lab.devices)):
        lab._lacking = why_no_board(cache_root() / BOARDS)
    if any(_is_left_to_the_computer(device) and device.dsp for device in lab.devices):
        lab._lacking_of_dsps = why_no_dsp(cache_root() / BOARDS)
    return _with_named(lab if find is None or not lab.sources else _with_sources(lab, find), names)


def shipped_lab(names: Iterable[str]) -> Path | None:
    """Return the lab of this computer's simulated devices, if it has all of these names.

    Raises ConfigError for a name that can only be meant for one of them.
    """
    known = [device.name for device in load_lab(SIMULATED_LAB).devices]
    unknown = [name for name in names if name not in known]
    for name in unknown:
        if (hint := did_you_mean(name, known)) or name.startswith("sim-"):
            problem = f"no simulated device {name!r}{hint}"
            raise ConfigError(problem, field="--device", choices=known)
    return None if unknown else SIMULATED_LAB


def _with_sources(lab: Lab, find: Callable[[DeviceSource], Iterable[SourceDevice]]) -> Lab:
    places: dict[str, DevicePlace] = {}
    devices: list[DeviceConfig] = []
    for source in lab.sources:
        try:
            with plugin_faults(source, "find", file=lab._file, field=source.section):
                found_devices = [*find(source)]
        except ConfigError as error:
            raise ConfigError(
                error.problem, file=lab._file, field=error.field, choices=error.choices
            ) from None
        for entry, place in found_devices:
            field = f"{source.section}, place {place.name}"
            try:
                device = DeviceConfig.model_validate(entry)
            except ValidationError as error:
                details = (f"{detail['loc'][0]} {detail['msg']}" for detail in error.errors())
                raise ConfigError("; ".join(details), file=lab._file, field=field) from None
            if device.name in places or device.name in lab._by_name:
                problem = f"another device is already named {device.name}"
                raise ConfigError(problem, file=lab._file, field=field)
            devices.append(device)
            places[device.name] = place
    extended = lab.with_devices(devices)
    extended._places = places
    return extended


def _is_left_to_the_computer(device: DeviceConfig) -> TypeGuard[SimulatedDeviceConfig]:
    if not isinstance(device, SimulatedDeviceConfig):
        return False
    return device.enabled == "auto" and device.target == EMULATED_TARGET
