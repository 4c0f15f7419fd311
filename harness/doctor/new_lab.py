"""What `qnn-harness init` writes: a devices.yaml of what is there, each line with its reason."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import yaml

from harness.core.outgoing_text import outgoing
from harness.core.socs import SOCS
from harness.doctor.check import one_line
from harness.lab.attach import AttachedDevice
from harness.lab.inventory import BOARD_WORKDIR, DEFAULT_WORKDIR
from harness.lab.new_devices import HOST, SIMULATED, FoundDevice
from harness.transport.adb_address import USER_SERVER, TcpAddress

_WIDTH: Final = 96


def lab_text(
    found: Sequence[FoundDevice], address: TcpAddress, *, simulated: bool, day: str
) -> str:
    """The text of devices.yaml: what answered, the rest in comments, and a simulated one (pure).

    `simulated`: whether that one is on.
    """
    lines = [
        f"# The devices that `pytest -m device` runs on; written by `qnn-harness init` on {day}.",
        "# docs/lab.md has the rules, docs/schema/devices.schema.json every field.",
        "schema: 1",
        "",
        "devices:",
    ]
    host = None if address == USER_SERVER else HOST
    for one in found:
        left_out = _comment(f"left out: {one.serial}: {one.problem}")
        lines += [*(left_out if one.device is None else _entry(one, one.device, host)), ""]
    lines += [
        "  # This computer as a device: the real QNN libraries for x86-64, no phone needed.",
        f"  - name: {SIMULATED}",
        "    simulated: true",
        "    soc: QCS8550",
        f"    enabled: {'true' if simulated else 'false'}",
    ]
    if any(one.device is not None and one.device.target == "android-arm64" for one in found):
        lines += [
            "",
            "# PyPI has no QNN for phones: set QAIRT_SDK_ROOT, or name a source (docs/android.md).",
            "# runtimes:",
            "#   - {name: sdk, kind: qairt, path: /opt/qairt}",
        ]
    if host is not None:
        where = f"{{name: {host}, host: {json.dumps(address.host)}, port: {address.port}}}"
        lines += ["", "hosts:", f"  - {where}"]
    return "\n".join(lines) + "\n"


def _entry(one: FoundDevice, device: AttachedDevice, host: str | None) -> Iterator[str]:
    """A device that answered."""
    facts, soc = device.facts, one.soc
    api = "" if facts.android_api is None else f", API {facts.android_api}"
    yield from _comment(f"{facts.os_build or 'an unknown system'}{api}")
    yield f"  - name: {_word(one.name)}"
    if one.is_board:
        yield "    transport: ssh"
    yield f"    {'address' if one.is_board else 'serial'}: {json.dumps(one.serial)}"
    if host is not None and not one.is_board:
        yield f"    host: {host}"
    known = SOCS.get(soc.name or "")
    arch = "" if soc.htp_arch is None else f"HTP v{soc.htp_arch}"
    adreno = f"Adreno {known.adreno}" if known and known.adreno else ""
    what = ", ".join(filter(None, (arch, adreno)))
    yield from _comment(f"{what}: {soc.why}" if what else soc.why, "    ")
    if soc.name is not None:
        yield f"    soc: {_word(soc.name)}"
    if soc.htp_arch is not None and known is None:
        yield f"    htp_arch: {soc.htp_arch}"
    yield from _comment(f"by its own words: {facts.target_reason}", "    ")
    yield f"    target: {device.target}"
    usual = BOARD_WORKDIR if one.is_board else DEFAULT_WORKDIR
    if device.workdir != usual:
        yield from _comment(f"{usual} takes no files there, or does not run them", "    ")
        yield f"    workdir: {device.workdir}"


def _comment(text: str, indent: str = "  ") -> Iterator[str]:
    head = f"{indent}# "
    yield from textwrap.wrap(
        outgoing(one_line(text)), _WIDTH, initial_indent=head, subsequent_indent=head
    )


def _word(text: str) -> str:
    return text if yaml.safe_load(text) == text else json.dumps(text)
