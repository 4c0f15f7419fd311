"""Reads what an adb server and a device say in text: the device list and getprop's table."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIELD = re.compile(r"(?P<key>usb|product|model|device|features|transport_id):(?P<value>\S*)")
_PROPERTY_START = re.compile(r"^\[([^\]]+)\]: \[", re.MULTILINE)


@dataclass(frozen=True)
class SeenDevice:
    """One line of the adb server's device list.

    `state` is adb's word: device, offline, unauthorized, authorizing, connecting, recovery,
    sideload, bootloader, host, or `no permissions`, whose explanation is in `detail`. Texts are
    empty and `transport` is None where the server does not tell.
    """

    serial: str
    state: str
    product: str = ""
    model: str = ""
    device: str = ""
    transport: int | None = None
    detail: str = ""


def parse_devices(text: str) -> list[SeenDevice]:
    """Reads the answer to `host:devices-l`; lines that make no sense are left out."""
    seen = []
    for line in text.splitlines():
        serial, _, rest = line.strip().partition(" ")
        if "\t" in serial:
            serial, _, rest = line.strip().partition("\t")
        rest = rest.strip()
        if not serial or not rest:
            continue
        fields: dict[str, str] = {}
        first = len(rest)
        for match in _FIELD.finditer(rest):
            if match.start() == 0 or rest[match.start() - 1] == " ":
                fields[match["key"]] = match["value"]
                first = min(first, match.start())
        state, detail = rest[:first].strip(), ""
        if state.startswith("no permissions"):
            state, detail = "no permissions", state.removeprefix("no permissions").strip(" ;")
        number = fields.get("transport_id", "")
        seen.append(
            SeenDevice(
                serial=serial,
                state=state or "unknown",
                product=fields.get("product", ""),
                model=fields.get("model", ""),
                device=fields.get("device", ""),
                transport=int(number) if re.fullmatch(r"[0-9]{1,18}", number) else None,
                detail=detail,
            )
        )
    return seen


def parse_properties(text: str) -> dict[str, str]:
    """Reads getprop's `[name]: [value]` table; a value may span lines."""
    text = text.replace("\r\n", "\n")
    starts = list(_PROPERTY_START.finditer(text))
    properties = {}
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        value = text[start.end() : end]
        closing = value.rfind("]")
        if closing >= 0:
            properties[start[1]] = value[:closing]
    return properties
