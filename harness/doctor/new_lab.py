"""The text of the devices.yaml of `qnn-harness init`, with the reason for each line."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import yaml

from harness.core.outgoing_text import outgoing
from harness.core.socs import SOCS
from harness.doctor.check_results import one_line
from harness.lab.device_config import BOARD_WORKDIR, DEFAULT_WORKDIR
from harness.lab.lab_device import AttachedDevice
from harness.lab.new_devices import HOST, SIMULATED, FoundDevice
from harness.transport.adb_address import USER_SERVER, TcpAddress, UnixAddress

_WIDTH: Final = 96


def lab_text(
    devices: Sequence[FoundDevice], address: TcpAddress | UnixAddress, *, simulated: bool, day: str
) -> str:
    """Return the text of devices.yaml: the devices that answered, others as comments (pure).

    `simulated`: whether the simulated device is enabled.
    """
    lines = [
        f"# The devices that `pytest -m device` runs on; written by `qnn-harness init` on {day}.",
        "# All keys: reference/files.md of the pages that `qnn-harness --help` names.",
        "schema: 1",
        "",
        "devices:",
    ]
    host = None if address == USER_SERVER else HOST
    for device in devices:
        left_out = _comment(f"left out: {device.serial}: {device.problem}")
        lines += [*(left_out if device.device is None else _entry(device, device.device, host)), ""]
    lines += [
        "  # This computer as a device: the real QNN libraries for x86-64, no phone needed.",
        f"  - name: {SIMULATED}",
        "    simulated: true",
        "    soc: QCS8550",
        f"    enabled: {'true' if simulated else 'false'}",
    ]
    if any(each.device and each.device.target == "android-arm64" for each in devices):
        lines += [
            "",
            "# PyPI has no QNN for phones: set QAIRT_SDK_ROOT, or name a source",
            "# (docs/tutorial/phone.md).",
            "# runtimes:",
            "#   - {name: sdk, kind: qairt, path: /opt/qairt}",
        ]
    if host is not None:
        entry = f"{{name: {host}, host: {json.dumps(address.host)}, port: {address.port}}}"
        lines += ["", "hosts:", f"  - {entry}"]
    return "\n".join(lines) + "\n"


def _entry(found: FoundDevice, device: AttachedDevice, host: str | None) -> Iterator[str]:
    facts, soc = device.facts, found.soc
    api = "" if facts.android_api is None else f", API {facts.android_api}"
    yield from _comment(f"{facts.os_build or 'an unknown system'}{api}")
    yield f"  - name: {_word(found.name)}"
    if found.is_board:
        yield "    transport: ssh"
    yield f"    {'address' if found.is_board else 'serial'}: {json.dumps(found.serial)}"
    if host is not None and not found.is_board:
        yield f"    host: {host}"
    known = SOCS.get(soc.name or "")
    arch = "" if soc.htp_arch is None else f"HTP v{soc.htp_arch}"
    adreno = f"Adreno {known.adreno}" if known and known.adreno else ""
    hardware = ", ".join(filter(None, (arch, adreno)))
    yield from _comment(f"{hardware}: {soc.why}" if hardware else soc.why, "    ")
    if soc.name is not None:
        yield f"    soc: {_word(soc.name)}"
    if soc.htp_arch is not None and known is None:
        yield f"    htp_arch: {soc.htp_arch}"
    yield from _comment(f"as the device reports: {facts.target_reason}", "    ")
    yield f"    target: {device.target}"
    default = BOARD_WORKDIR if found.is_board else DEFAULT_WORKDIR
    if device.workdir != default:
        yield from _comment(f"{default} is not writable, or mounted noexec", "    ")
        yield f"    workdir: {device.workdir}"


def _comment(text: str, indent: str = "  ") -> Iterator[str]:
    head = f"{indent}# "
    yield from textwrap.wrap(
        outgoing(one_line(text)), _WIDTH, initial_indent=head, subsequent_indent=head
    )


def _word(text: str) -> str:
    return text if yaml.safe_load(text) == text else json.dumps(text)
