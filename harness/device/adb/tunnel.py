"""Tunnels to adb servers on other computers."""

from __future__ import annotations

from typing import Final

from harness.device.adb.address import SshAddress, TcpAddress
from harness.device.ssh.connection import SharedConnection, shared_connection
from harness.device.ssh.login import SshLogin

_START_S: Final = 15.0


def tunnel(address: SshAddress) -> SharedConnection:
    """The connection to the computer of a server behind ssh, whose socket leads to that server.

    It may take 15 s to be begun, whatever time its users have: others wait for it, too.
    """
    return shared_connection(
        SshLogin(address.login, address.ssh_port),
        address,
        forward=str(TcpAddress(address.behind, address.port)),
        name=str(address),
        least_s=_START_S,
    )
