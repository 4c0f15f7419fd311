"""One name for each address of a device, however it was written.

Until a device has answered, its address is all that is known of it. What differs only in spelling
is one address: `localhost:5555`, `127.0.0.1:05555` and `[::1]:5555`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Callable
from typing import Final

LOCAL: Final = "local"
"""The canonical name of the computer that an address is looked up on."""

_LOCAL_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
# what `adb connect` takes where no port is given
_DEFAULT_PORT: Final = 5555
_EMULATOR: Final = re.compile(r"emulator-(\d{4,5})")

IsOwn = Callable[[str], bool]
"""Whether a canonical host (a name, or an IP address) is this computer."""


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


def canonical_host(host: str, is_own: IsOwn) -> str:
    """`local` for this computer, else one spelling for all of a host's (pure but for `is_own`).

    Addresses are read as `getaddrinfo` does for adb: leading zeros make a number octal. Of the
    loopback network only 127.0.0.1 is `local`: others may be ends of tunnels to different devices.
    """
    name = host.strip().removeprefix("[").removesuffix("]").rstrip(".").lower()
    address = _ip(name)
    if address is None:
        here = name in _LOCAL_NAMES or name.endswith(".localhost")
        return LOCAL if here or is_own(name) else name
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    text = str(address)
    if address.is_unspecified or text in ("127.0.0.1", "::1"):
        return LOCAL
    return LOCAL if not address.is_loopback and is_own(text) else text


def is_this_computer(host: str) -> bool:
    """Whether a canonical name or IP address is this computer's own. Asks no name server."""
    if _ip(host) is None:
        own = socket.gethostname().rstrip(".").lower()
        return host in (own, own.partition(".")[0], f"{own}.local")
    bare, _, scope = host.partition("%")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    # only an address of one's own can be bound to; nothing is sent
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as bound:
        index = socket.if_nametoindex(scope) if scope else 0
        bound.bind((bare, 0, 0, index) if family == socket.AF_INET6 else (bare, 0))
        return True
    return False


def device_address(serial: str, server_host: str, server_port: int, is_own: IsOwn) -> str:
    """One name for the device that an adb server knows as `serial`.

    An address on the network means the same device to every server. Serial numbers, and what is on
    the server's own computer, mean something only together with the server: a port of this computer
    may lead to a server far away.
    """
    server = canonical_host(server_host, is_own)
    address = split_address(serial)
    if address is None:
        return f"{server}:{server_port}:{serial}"
    host = canonical_host(address[0], is_own if server == LOCAL else lambda _: False)
    if host == LOCAL or (_ip(host) or ipaddress.ip_address("0.0.0.0")).is_loopback:
        return f"{server}:{server_port}:{host}:{address[1]}"
    return f"tcp:{host}:{address[1]}"


def service_address(kind: str, host: str, port: int, is_own: IsOwn) -> str:
    """One name for what listens on a device itself, such as an sshd."""
    return f"{kind}:{canonical_host(host, is_own)}:{port}"


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if re.fullmatch(r"[0-9a-fx.]+", host, re.IGNORECASE) and host[0].isdigit():
        with contextlib.suppress(OSError):
            return ipaddress.IPv4Address(socket.inet_aton(host))
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None
