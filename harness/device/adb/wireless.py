"""Phones on Wi-Fi: adb over TLS, found by mDNS, on a port that changes ever again (pure).

Seen of an adb server 36: `host:mdns:services` has lines of name, type and address, and
`host:connect` takes the name, which stays, and finds the port of now.
"""

from __future__ import annotations

from typing import Final

TLS: Final = "._adb-tls-connect._tcp"
ADVICE: Final = (
    "look whether Wireless debugging is on there, and this computer paired: `adb pair ADDRESS CODE`"
)


def has_address(serial: str) -> bool:
    """Whether a serial says where adb finds a device on the network, so that it is connected."""
    return ":" in serial or TLS in serial


def where_now(serial: str, services: str) -> str:
    """What the announced services say of a device that cannot be connected; "" if nothing."""
    if TLS in serial:
        return f"; {ADVICE}"
    host = serial.rpartition(":")[0]
    for line in services.splitlines()[:1000]:
        name, kind, address = (*line.split("\t"), "", "")[:3]
        if kind in TLS and kind and address != serial and address.rpartition(":")[0] == host:
            return f"; it is at {address} now, and always `serial: {name}{TLS}` in devices.yaml"
    return ""
