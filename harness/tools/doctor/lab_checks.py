"""The lab: its file, its adb servers, and what they and this computer know of each device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from harness.device.adb.address import USER_SERVER, SshAddress
from harness.device.adb.server import STATE_ADVICE, AdbServer, SeenDevice
from harness.device.adb.wireless import has_address
from harness.device.dsp.qemu import HMX, SETUP, VECTOR_FLOAT, find_qemu
from harness.device.lab.inventory import DeviceConfig, Lab
from harness.device.lab.runtime_sources import PACKAGE_INDEX
from harness.ground.errors import ConfigError, HarnessError, InfraError, NoLabError
from harness.ground.errors.outgoing_text import counted
from harness.ground.facts.platforms import TARGETS
from harness.ground.host.deadline import Deadline
from harness.libraries.runtimes.catalog import Catalog
from harness.search.nightly.notifications import channel_problem
from harness.tools.doctor.check import LAB_FILE, Answer, Checked
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


def other_checks(lab: Lab) -> Iterator[Checked]:
    """The devices on the user's own adb server that no lab names; none is started for this."""
    by_adb = [device for device in lab.devices if device.transport == "adb"]
    known = {device.serial for device in by_adb if lab.server_of(device) == USER_SERVER}
    server, seen = AdbServer(USER_SERVER), list[SeenDevice]()
    if server.is_running():
        with contextlib.suppress(InfraError):
            seen = server.devices()
    yield from (stranger_check(one) for one in seen if one.serial not in known)


def stranger_check(seen: SeenDevice) -> Checked:
    """A device that devices.yaml does not name (pure)."""
    advice = "name it in devices.yaml to use it"
    if seen.state in STATE_ADVICE:
        advice = f"{STATE_ADVICE[seen.state]}; then {advice}"
    said = " ".join(filter(None, (seen.state, seen.model)))
    return _check("lab", f"not in the lab: {seen.serial}", "warn", said, advice)
