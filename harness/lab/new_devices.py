"""Discovery of devices that devices.yaml does not name yet, over adb and ssh."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from harness.core.errors import ConfigError, HarnessError
from harness.core.socs import HTP_ARCHS, KERNEL_SOC_IDS, PLATFORMS, SOCS, near_socs
from harness.core.state_folders import cache_root, simulated_root
from harness.core.yaml_document import shown
from harness.lab.config_fields import SERIAL, WORD
from harness.lab.device_config import BOARD_WORKDIR, DEFAULT_WORKDIR, DeviceConfig
from harness.lab.facts import DeviceAnswers, DeviceFacts, query_device
from harness.lab.inventory import Lab, free_name
from harness.lab.lab_device import AttachedDevice, OpenLab
from harness.transport.adb_server import STATE_ADVICE, AdbServer, SeenDevice
from harness.transport.ssh_connection import login_at

SIMULATED: Final = "sim-v73"
"""The name `init` gives to the simulated device; no other device gets it."""
HOST: Final = "adb-host"
"""The name it gives to an adb server on another computer."""
_WORKDIRS: Final = (DEFAULT_WORKDIR, "/opt/qnn-harness", BOARD_WORKDIR, "/tmp/qnn-harness")
_SKEL: Final = re.compile(r"libQnnHtpV(\d{2})Skel\.so$", re.ASCII)


class IdentifiedSoc(NamedTuple):
    """A device's SoC: its name, its HTP (73 for v73), and how that is known."""

    name: str | None
    htp_arch: int | None
    why: str


@dataclass(frozen=True)
class FoundDevice:
    """A device that adb lists, or a board: its answers, or the reason why there are none.

    `serial` is the address of a board.
    """

    name: str
    serial: str
    device: AttachedDevice | None = None
    answers: DeviceAnswers | None = None
    problem: str = ""
    is_board: bool = False

    @property
    def soc(self) -> IdentifiedSoc:
        if self.device is None or self.answers is None:
            return IdentifiedSoc(None, None, self.problem)
        return identify_soc(self.device.facts, list(self.answers.skels))

    @property
    def description(self) -> str:
        soc, target = self.soc, None if self.device is None else self.device.target
        arch = None if soc.htp_arch is None else f"HTP v{soc.htp_arch}"
        return f"{', '.join(filter(None, (soc.name, arch, target)))}: {soc.why}"


def find_devices(server: AdbServer, taken_names: Sequence[str] = ()) -> list[FoundDevice]:
    """Identify each device that an adb server lists. Raises InfraError without a server."""
    devices: list[FoundDevice] = []
    for entry in server.devices():
        device = _identify(entry, server)
        names = [SIMULATED, *taken_names, *(other.name for other in devices)]
        target = "" if device.device is None else device.device.target
        devices.append(replace(device, name=free_name(entry.model, target, names)))
    return devices


def find_boards(logins: Iterable[str]) -> list[FoundDevice]:
    """Identify each board, [user@]host[:port], over ssh.

    Raises ConfigError for a malformed address.
    """
    boards: list[FoundDevice] = []
    for login in dict.fromkeys(logins):
        address = login_at(login)
        if address is None:
            raise ConfigError(f"{shown(login)!r} is not [user@]host[:port]", field="--board")
        names = [SIMULATED, *(other.name for other in boards)]
        name = free_name(address.host, "linux", names)
        config = {"name": name, "transport": "ssh", "address": login}
        lab = Lab.model_validate({"schema": 1, "devices": [config]})
        try:
            board = _visit(lab, lab.devices[0])
        except HarnessError as error:
            board = FoundDevice(name, login, problem=str(error))
        boards.append(replace(board, serial=login, is_board=True))
    return boards


def _identify(listed: SeenDevice, server: AdbServer) -> FoundDevice:
    unreached = FoundDevice("device", listed.serial)
    if listed.state != "device":
        why = f"{listed.state}: {STATE_ADVICE.get(listed.state, 'see `adb devices -l`')}"
        return replace(unreached, problem=why)
    if not SERIAL.fullmatch(listed.serial):
        return replace(unreached, problem="devices.yaml does not accept this serial")
    address = server.address
    host = {"name": HOST, "host": address.host, "port": getattr(address, "port", 0)}
    device = {"name": unreached.name, "serial": listed.serial, "host": HOST}
    lab = Lab.model_validate({"schema": 1, "hosts": [host], "devices": [device]})
    try:
        return _visit(lab, lab.devices[0])
    except HarnessError as error:
        return replace(unreached, problem=str(error))


def _visit(lab: Lab, config: DeviceConfig) -> FoundDevice:
    """Query a device without leasing it: another process may use it."""
    cache = cache_root()
    with OpenLab(lab, key_folder=cache / "keys", storage_root=simulated_root(cache)) as opened:
        device, answers = _with_workdir(opened.device(config.name).attach())
    return FoundDevice(config.name, device.transport.serial, device, answers)


def with_hardware(lab: Lab) -> Lab:
    """Return the lab with the hardware of its undescribed devices, which are queried.

    Raises ConfigError for one that does not report enough, InfraError for one that does not answer.
    """
    return lab.with_devices(
        [_config_of(_visit(lab, device), device) for device in lab.undescribed_devices]
    )


def _config_of(visited: FoundDevice, described: DeviceConfig) -> DeviceConfig:
    soc, device = visited.soc, visited.device
    entry = described.model_dump(include=described.model_fields_set)
    if device is None or (soc.name is None and soc.htp_arch is None):
        fields = (f"{key}: {json.dumps(value)}" for key, value in entry.items())
        advice = f"Add it to devices.yaml, for example `- {{{', '.join(fields)}, soc: QCS8550}}`"
        raise ConfigError(
            f"{entry.get('address', visited.serial)}: {soc.why}. {advice}", field="--device"
        )
    entry |= {"soc": soc.name, "htp_arch": soc.htp_arch, "target": device.target}
    return DeviceConfig.model_validate(entry | {"workdir": device.workdir})


def _with_workdir(device: AttachedDevice) -> tuple[AttachedDevice, DeviceAnswers]:
    """Query a device, using the first work folder that can be written and executed from."""
    tried: list[tuple[AttachedDevice, DeviceAnswers]] = []
    phone = PLATFORMS[device.target].libc == "bionic"
    folders = tuple(dict.fromkeys((device.workdir, *_WORKDIRS)))
    for folder in folders[: 1 if phone else None]:
        candidate = replace(device, workdir=folder)
        tried.append((candidate, query_device(device.transport, folder, device.target)))
        if tried[-1][1].vitals.write_problem is None and tried[-1][1].exec_exit == 7:
            return tried[-1]
    return tried[0]


def identify_soc(facts: DeviceFacts, skels: Sequence[str]) -> IdentifiedSoc:
    """Identify a SoC by its own name, the kernel's number, or the skels of its image (pure)."""
    reported = facts.soc or ""
    if reported in SOCS:
        return IdentifiedSoc(reported, SOCS[reported].htp_arch, "as the device reports")
    calls = (
        f"the device reports SoC {reported!r}" if reported else "the device does not report its SoC"
    )
    named = [known_name for known_name, number in KERNEL_SOC_IDS.items() if number == facts.soc_id]
    if named:
        arch = SOCS[named[0]].htp_arch
        return IdentifiedSoc(named[0], arch, f"the kernel's soc_id is {facts.soc_id}; {calls}")
    near = near_socs(reported)
    unknown = f"{calls}, which is unknown" if reported else calls
    if near:
        unknown += f" (similar: {', '.join(near)})"
    known_name = reported if WORD.fullmatch(reported) else None
    archs = {int(skel[1]) for path in skels if (skel := _SKEL.search(path))} & set(HTP_ARCHS)
    if len(archs) == 1:
        (arch,) = archs
        return IdentifiedSoc(known_name, arch, f"{unknown}; the image has libQnnHtpV{arch}Skel.so")
    choices = ", ".join(map(str, HTP_ARCHS))
    return IdentifiedSoc(known_name, None, f"{unknown}; set htp_arch to one of {choices}")
