"""One name for each address of a device, however it was written.

Until a device has answered, its address is all that is known of it. What differs only in spelling
is one address: `localhost:5555`, `127.0.0.1:05555` and `[::1]:5555`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from typing import Final

LOCAL: Final = "local"
"""The canonical name of the computer that an address is looked up on."""

_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
# what `adb connect` takes where no port is given
_DEFAULT_PORT: Final = 5555
_EMULATOR: Final = re.compile(r"emulator-(\d{4,5})")


def split_address(serial: str) -> tuple[str, str] | None:
    """Host and port of a serial that is an address, None if it is none.

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
    """`local` for this computer's loopback, else one spelling for all of a host's (pure).

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
    """One name for the device that an adb server knows as `serial`.

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
    """One name for what listens on a device itself, such as an sshd."""
    return f"{kind}:{canonical_host(host)}:{port}"


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if re.fullmatch(r"[0-9a-fx.]+", host, re.IGNORECASE) and host[0].isdigit():
        with contextlib.suppress(OSError):
            return ipaddress.IPv4Address(socket.inet_aton(host))
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None
