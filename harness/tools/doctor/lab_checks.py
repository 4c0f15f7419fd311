"""The lab: its file, its adb servers, and what they and this computer know of each device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from harness.device.adb.address import USER_SERVER, ServerAddress, SshAddress
from harness.device.adb.server import STATE_ADVICE, AdbServer, SeenDevice, state_advice
from harness.device.adb.wireless import has_address
from harness.device.dsp.qemu import HMX, SETUP, VECTOR_FLOAT, find_qemu
from harness.device.lab.inventory import DeviceConfig, Lab
from harness.device.lab.lease_files import Held
from harness.device.lab.quarantine import Quarantined
from harness.device.lab.runtime_sources import PACKAGE_INDEX
from harness.ground.errors import ConfigError, HarnessError, InfraError, NoLabError
from harness.ground.errors.outgoing_text import counted
from harness.ground.facts.platforms import TARGETS
from harness.ground.host.deadline import Deadline
from harness.libraries.runtimes.catalog import Catalog
from harness.search.nightly.notifications import channel_problem
from harness.tools.doctor.check import LAB_FILE, Answer, Checked, Status
from harness.tools.doctor.host_checks import LabNeeds

_ANSWER_S: Final = 5.0
_NO_LAB: Final = "none here; a simulated device needs none: qnn-harness run FILE --device sim-v73"
_check = partial(Checked, "lab")


def lab_needs(devices: Sequence[DeviceConfig]) -> LabNeeds:
    """What these devices want of this computer (pure)."""
    by_adb = [one for one in devices if one.transport == "adb"]
    return LabNeeds(
        targets=frozenset(device.target for device in devices if device.target),
        untold=tuple(
            device.name
            for device in by_adb
            if device.target is None and not has_address(device.serial or "")
        ),
        server=any(not (one.simulated or one.host or one.address) for one in by_adb),
    )


def file_check(path: Path, lab: Lab | ConfigError, *, asked: bool) -> Checked:
    """Whether devices.yaml is as it should be; without one nothing is wrong unless it was `asked`
    for a device."""
    if isinstance(lab, NoLabError) and not asked and path == Path(LAB_FILE):
        return _check("lab", LAB_FILE, "not-applicable", _NO_LAB, "for a phone: qnn-harness init")
    if isinstance(lab, ConfigError):
        advice = "" if isinstance(lab, NoLabError) else "correct what the message names"
        return _check("lab", LAB_FILE, "fail", str(lab), advice)
    devices, enabled = counted(len(lab.devices), "device"), len(lab.in_use())
    return _check("lab", LAB_FILE, "ok", f"{path}: {devices}, {enabled} enabled")


def simulated_checks(lab: Lab, devices: Sequence[DeviceConfig], cache: Path) -> Iterator[Checked]:
    """What keeps this computer from simulating a device, and what a simulated DSP runs in."""
    for device in lab.devices:
        why = lab.why_off(device)
        if why is not None and device.enabled:
            yield _check(device.name, "simulated here", "not-applicable", why)
    for device in devices:
        if device.dsp is not None:
            yield _check(device.name, "DSP emulator", *_emulator(cache))


def _emulator(cache: Path) -> Answer:
    try:
        qemu = find_qemu(cache)
    except HarnessError as error:
        return Answer("fail", str(error))
    found = f"{qemu.path}, version {qemu.version}"
    lacks = [name for name in (VECTOR_FLOAT, HMX) if name not in qemu.can]
    if not lacks:
        return Answer("ok", found)
    what = f"{found}, lacks {' and '.join(lacks)}: graphs that need it are unsupported"
    return Answer("warn", what, f"`{SETUP}` builds one that has it")


def source_checks(catalog: Catalog) -> Iterator[Checked]:
    """What the lab's own sources of runtimes have, and for which targets."""
    for source in catalog.sources:
        if source.name == PACKAGE_INDEX:
            continue
        try:
            has = {target: source.versions(target) for target in TARGETS}
        except HarnessError as error:
            advice = "correct it in `runtimes` of devices.yaml, or the variable that names it"
            yield _check("lab", f"source {source.name}", "fail", str(error), advice)
            continue
        found = [f"{', '.join(every[-3:])} for {target}" for target, every in has.items() if every]
        if found:
            yield _check("lab", f"source {source.name}", "ok", "; ".join(found))
        else:
            advice = "name the folder that holds lib/, or another source"
            yield _check("lab", f"source {source.name}", "warn", "no QNN in it", advice)


def notify_checks(lab: Lab) -> Iterator[Checked]:
    """Check that each channel of `notify` is set up, without sending anything."""
    for channel in lab.notify:
        if why := channel_problem(channel):
            advice = "correct devices.yaml or the environment, then: qnn-harness notify --test"
            yield _check("lab", f"notify {channel.name}", "fail", why, advice)
        else:
            found = "is set up; to try it: qnn-harness notify --test"
            yield _check("lab", f"notify {channel.name}", "ok", found)


def server_checks(lab: Lab, devices: Sequence[DeviceConfig]) -> Iterator[Checked]:
    """Whether the adb servers on other computers answer."""
    far = [one for one in devices if one.transport == "adb" and (one.host or one.address)]
    addresses = {lab.server_of(one): one for one in far}
    for address, one in addresses.items():
        name = one.host or address.host
        try:
            AdbServer(address).version(deadline=Deadline(_ANSWER_S))
        except InfraError as error:
            advice = f"run `{address.start_command}` there"
            if address.port:
                advice += f", and let port {address.port} through"
            if isinstance(address, SshAddress):
                advice = "see that ssh gets there without asking, and that an adb server runs there"
            yield _check("lab", f"adb host {name}", "fail", str(error), advice)
        else:
            yield _check("lab", f"adb host {name}", "ok", f"answers at {address}")


def attached_checks(lab: Lab, devices: Sequence[DeviceConfig]) -> Iterator[Checked]:
    """What the adb servers see of each real device, and whom else the user's own one sees."""
    attached = [one for one in devices if not one.simulated and one.transport == "adb"]
    lists = {server: _seen(server) for server in {USER_SERVER, *map(lab.server_of, attached)}}
    for device in attached:
        yield state_check(device, lists[lab.server_of(device)])
    by_adb = [device for device in lab.devices if device.transport == "adb"]
    known = {device.serial for device in by_adb if lab.server_of(device) == USER_SERVER}
    own = lists[USER_SERVER]
    if isinstance(own, list):
        yield from (stranger_check(seen) for seen in own if seen.serial not in known)


def _seen(address: ServerAddress) -> list[SeenDevice] | str:
    """What an adb server reports, or why it does not; none is started for this."""
    server = AdbServer(address)
    if not server.is_running():
        return f"no {server} answers"
    try:
        return server.devices()
    except InfraError as error:
        return str(error)


def state_check(device: DeviceConfig, seen: list[SeenDevice] | str) -> Checked:
    """What adb says of a configured device (pure)."""
    if isinstance(seen, str):
        return _check(device.name, "attached", "unknown", seen)
    found = next((one for one in seen if one.serial == device.serial), None)
    if found is None and has_address(device.serial or ""):
        return _check(device.name, "attached", "ok", f"{device.serial} is connected when needed")
    if found is None:
        there = ", ".join(f"{one.serial} ({one.state})" for one in seen) or "no device"
        advice = "plug it in and enable USB debugging, or correct `serial` in devices.yaml"
        return _check(
            device.name,
            "attached",
            "fail",
            f"unplugged or switched off: adb does not see {device.serial}; it sees {there}",
            advice,
        )
    if found.state == "device":
        return _check(device.name, "attached", "ok", f"{found.serial} {found.model}".strip())
    advice = state_advice(found.state, found.serial, "see `adb devices -l`")
    # an address is connected anew by whoever uses it
    status: Status = "warn" if has_address(found.serial) and found.state == "offline" else "fail"
    return _check(device.name, "attached", status, f"{found.serial} is {found.state}", advice)


def stranger_check(seen: SeenDevice) -> Checked:
    """A device that devices.yaml does not name (pure)."""
    advice = "name it in devices.yaml to use it"
    if seen.state in STATE_ADVICE:
        advice = f"{STATE_ADVICE[seen.state]}; then {advice}"
    said = " ".join(filter(None, (seen.state, seen.model)))
    return _check("lab", f"not in the lab: {seen.serial}", "warn", said, advice)


def lease_check(name: str, held: Held | None) -> Checked:
    """Whether another process holds a device (pure)."""
    if held is None:
        return _check(name, "lease", "ok", "free")
    advice = "wait for it, or end that process: the device is left alone until then"
    return _check(name, "lease", "warn", f"held by {held}", advice)


def quarantine_check(name: str, entry: Quarantined | InfraError | None) -> Checked:
    """Whether a device takes cases (pure)."""
    if entry is None:
        return _check(name, "quarantine", "ok", "not in quarantine")
    if isinstance(entry, InfraError):
        return _check(name, "quarantine", "fail", str(entry))
    if entry.until == "answers":
        found = f"not in quarantine: it did not answer at {entry.since}, and is used once it does"
        return _check(name, "quarantine", "ok", found)
    advice = f"mend it, then: qnn-harness devices heal {name}"
    return _check(name, "quarantine", "fail", f"since {entry.since}: {entry.why}", advice)
