"""Addresses of devices on adb servers elsewhere, as devices.yaml has them (pure)."""

from __future__ import annotations

import re
from typing import Final

from harness.device.adb.address import USER_PORT, SshAddress, TcpAddress
from harness.device.ssh.login import SSH_COMPUTER, is_port, login_at

_SERIAL: Final = r'[!"$-.0->@-~]{1,128}'  # of a URL: without / ? and #
DEVICE_URL: Final = re.compile(rf"(adb|ssh)://{SSH_COMPUTER.pattern}/({_SERIAL})", re.ASCII)
DEVICE_URLS: Final = ("adb://HOST[:PORT]/SERIAL", "ssh://LOGIN[:PORT]/SERIAL, LOGIN: [user@]host")
"""How the address of a device is written that hangs on an adb server elsewhere."""


def ssh_address(
    computer: str, behind: str = "127.0.0.1", port: int = USER_PORT
) -> SshAddress | None:
    """The server behind `[user@]host[:port]`, None if it is written in another way."""
    found = login_at(computer)
    return None if found is None else SshAddress(found.login, found.port, behind, port)


def device_at(url: str) -> tuple[TcpAddress | SshAddress, str] | None:
    """The server and the serial that `url` names, None if it is no address of a device."""
    found = DEVICE_URL.fullmatch(url)
    if found is None or (found[1] == "adb" and "@" in found[2]) or not is_port(found[3]):
        return None
    if found[1] == "adb":
        return TcpAddress(found[2].strip("[]"), int(found[3] or USER_PORT)), found[4]
    server = ssh_address(url[len("ssh://") : found.end(3) if found[3] else found.end(2)])
    return None if server is None else (server, found[4])
