"""Devices that no devices.yaml names yet: what answers by adb or ssh is asked what it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from harness.core.errors import ConfigError, HarnessError
from harness.core.socs import HTP_ARCHS, KERNEL_SOC_IDS, PLATFORMS, SOCS, near_socs
from harness.core.yaml_document import shown
from harness.lab.attach import AttachedDevice, OpenLab
from harness.lab.device_answers import DeviceAnswers, ask
from harness.lab.facts import DeviceFacts
from harness.lab.fields import DEVICE_URLS, device_at
from harness.lab.inventory import BOARD_WORKDIR, DEFAULT_WORKDIR, DeviceConfig, Lab
from harness.transport.adb_server import STATE_ADVICE, AdbServer, SeenDevice
from harness.transport.ssh_connection import login_at

SIMULATED: Final = "sim-v73"
"""What `init` calls the simulated device: no other gets that name."""
HOST: Final = "adb-host"
"""What it calls an adb server on another computer."""
_WORKDIRS: Final = (DEFAULT_WORKDIR, "/opt/qnn-harness", BOARD_WORKDIR, "/tmp/qnn-harness")
_SERIAL: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_SKEL: Final = re.compile(r"libQnnHtpV(\d{2})Skel\.so$", re.ASCII)


class ToldSoc(NamedTuple):
    """What a device is: the name of its SoC, 73 for HTP v73, and how that is known."""

    name: str | None
    htp_arch: int | None
    why: str


@dataclass(frozen=True)
class FoundDevice:
    """A device that adb sees, or a board: what it answered, or else why it did not.

    `serial` is the address of a board.
    """

    name: str
    serial: str
    device: AttachedDevice | None = None
    answers: DeviceAnswers | None = None
    problem: str = ""
    is_board: bool = False

    @property
    def soc(self) -> ToldSoc:
        if self.device is None or self.answers is None:
            return ToldSoc(None, None, self.problem)
        return told_soc(self.device.facts, list(self.answers.skels))

    @property
    def told(self) -> str:
        soc, target = self.soc, None if self.device is None else self.device.target
        arch = None if soc.htp_arch is None else f"HTP v{soc.htp_arch}"
        return f"{', '.join(filter(None, (soc.name, arch, target)))}: {soc.why}"


def find_devices(
    server: AdbServer, open_lab: Callable[[Lab], OpenLab], taken_names: Sequence[str] = ()
) -> list[FoundDevice]:
    """Asks each device that an adb server sees what it is. Raises InfraError without a server."""
    found: list[FoundDevice] = []
    for seen in server.devices():
        one = _asked(seen, server, open_lab)
        taken = [SIMULATED, *taken_names, *(other.name for other in found)]
        target = "" if one.device is None else one.device.target
        found.append(replace(one, name=free_name(seen.model, target, taken)))
    return found


def find_boards(logins: Iterable[str], open_lab: Callable[[Lab], OpenLab]) -> list[FoundDevice]:
    """Asks each board, [user@]host[:port], that ssh leads to what it is.

    Raises ConfigError for what is no such address.
    """
    found: list[FoundDevice] = []
    for login in dict.fromkeys(logins):
        at = login_at(login)
        if at is None:
            problem = f"{shown(login)!r} is not [user@]host[:port]"
            raise ConfigError(problem, field="--board")
        names = [SIMULATED, *(other.name for other in found)]
        name = free_name(at.host, "linux", names)
        device = {"name": name, "transport": "ssh", "address": login}
        lab = Lab.model_validate({"schema": 1, "devices": [device]})
        try:
            one = _visited(lab, open_lab)
        except HarnessError as error:
            one = FoundDevice(name, login, problem=str(error))
        found.append(replace(one, serial=login, is_board=True))
    return found


def _asked(seen: SeenDevice, server: AdbServer, open_lab: Callable[[Lab], OpenLab]) -> FoundDevice:
    one = FoundDevice("device", seen.serial)
    if seen.state != "device":
        why = f"{seen.state}: {STATE_ADVICE.get(seen.state, 'see `adb devices -l`')}"
        return replace(one, problem=why)
    if not _SERIAL.fullmatch(seen.serial):
        return replace(one, problem="its serial is not one that a lab can name")
    address = server.address
    here = {"name": HOST, "host": address.host, "port": getattr(address, "port", 0)}
    device = {"name": one.name, "serial": seen.serial, "host": HOST}
    lab = Lab.model_validate({"schema": 1, "hosts": [here], "devices": [device]})
    try:
        return _visited(lab, open_lab)
    except HarnessError as error:
        return replace(one, problem=str(error))


def _visited(lab: Lab, open_lab: Callable[[Lab], OpenLab]) -> FoundDevice:
    (config,) = lab.devices
    with open_lab(lab) as opened:
        device, answers = _with_workdir(opened.device(config.name).attach())
    return FoundDevice(config.name, config.serial or "", device, answers)


def with_addresses(
    lab: Lab | None, urls: Iterable[str], open_lab: Callable[[Lab], OpenLab]
) -> tuple[Lab, dict[str, str]]:
    """The lab with those devices, too, that it does not have; {address: name of the device}.

    They are asked what they are. Raises ConfigError for what is no address, or for a device that
    does not say enough, InfraError for one that does not answer.
    """
    names: dict[str, str] = {}
    known = {} if lab is None else {lab.address_of(one): one.name for one in lab.devices}
    for url in dict.fromkeys(urls):
        if device_at(url) is None:
            problem = f"{shown(url)!r} is no address of a device"
            raise ConfigError(problem, field="--device", choices=DEVICE_URLS)
        alone = Lab.model_validate({"schema": 1, "devices": [{"name": "device", "address": url}]})
        (place,) = map(alone.address_of, alone.devices)
        if place not in known:
            found = _visited(alone, open_lab)
            taken = [*(known.values()), *({one.pool for one in lab.devices} if lab else ())]
            new = alone.model_copy(update={"devices": (_described(found, url, taken),)})
            lab = new if lab is None else lab.with_devices(new.devices)
            known[place] = new.devices[0].name
        names[url] = known[place]
    if lab is None:
        raise ConfigError("names no device", field="--device", choices=DEVICE_URLS)
    return lab, names


def _described(found: FoundDevice, url: str, taken: Collection[str | None]) -> DeviceConfig:
    """What devices.yaml would say of a device that answered."""
    soc, device = found.soc, found.device
    name = free_name(found.serial, "", taken)
    if device is None or (soc.name is None and soc.htp_arch is None):
        entry = f"- {{name: {name}, address: {json.dumps(url)}, soc: QCS8550}}"
        problem = f"{url}: {soc.why}. Write what it is into devices.yaml, as in `{entry}`"
        raise ConfigError(problem, field="--device")
    told = {"soc": soc.name, "htp_arch": soc.htp_arch, "target": device.target}
    where = {"name": name, "address": url, "workdir": device.workdir}
    return DeviceConfig.model_validate(where | told)


def _with_workdir(device: AttachedDevice) -> tuple[AttachedDevice, DeviceAnswers]:
    """What a device answers, with the first work folder that takes files and runs them."""
    tried: list[tuple[AttachedDevice, DeviceAnswers]] = []
    phone = PLATFORMS[device.target].libc == "bionic"
    folders = tuple(dict.fromkeys((device.workdir, *_WORKDIRS)))
    for folder in folders[: 1 if phone else None]:
        there = replace(device, workdir=folder)
        tried.append((there, ask(there)))
        if tried[-1][1].vitals.write_problem is None and tried[-1][1].exec_exit == 7:
            return tried[-1]
    return tried[0]


def free_name(model: str, target: str, taken: Collection[str | None]) -> str:
    """What to call a device: its model in small letters, with a number if that is taken (pure)."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.lower(), flags=re.ASCII).strip("-")[:40]
    kind = "board" if target.startswith("linux") else "phone"
    name = plain = plain.strip("-") or kind
    number = 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


def told_soc(facts: DeviceFacts, skels: Sequence[str]) -> ToldSoc:
    """What a device is by its own name, the kernel's number, or the skels of its image (pure)."""
    said = facts.soc or ""
    if said in SOCS:
        return ToldSoc(said, SOCS[said].htp_arch, "it says so itself")
    calls = f"it calls itself {said!r}" if said else "it does not tell its SoC"
    named = [name for name, number in KERNEL_SOC_IDS.items() if number == facts.soc_id]
    if named:
        arch = SOCS[named[0]].htp_arch
        return ToldSoc(named[0], arch, f"its kernel's soc_id is {facts.soc_id}; {calls}")
    near = near_socs(said)
    unknown = f"{calls}, which is not in our table" if said else calls
    if near:
        unknown += f" (close to it: {', '.join(near)})"
    name = said if _WORD.fullmatch(said) else None
    found = {int(skel[1]) for path in skels if (skel := _SKEL.search(path))} & set(HTP_ARCHS)
    if len(found) == 1:
        (arch,) = found
        return ToldSoc(name, arch, f"{unknown}; its image has libQnnHtpV{arch}Skel.so")
    choices = ", ".join(map(str, HTP_ARCHS))
    return ToldSoc(name, None, f"{unknown}; set htp_arch to one of {choices}")
