"""Tunnels to adb servers on other computers, and commands of those computers' own shells."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from typing import Final

from harness.device.adb.address import SshAddress, TcpAddress
from harness.device.ssh.connection import SharedConnection, shared_connection
from harness.device.ssh.login import SshLogin
from harness.device.transport.channel import Channel
from harness.ground.host.deadline import Deadline

_START_S: Final = 15.0


def connect_through(address: SshAddress, timeout_s: float) -> socket.socket:
    """A connection to a server behind ssh.

    A tunnel that has to be begun may take 15 s, whatever `timeout_s` says: others wait for it, too.
    Raises OutOfReachError with what ssh said, TimeoutError.
    """
    return _tunnel(address).connect(timeout_s)


def _tunnel(address: SshAddress) -> SharedConnection:
    return shared_connection(
        SshLogin(address.login, address.ssh_port),
        address,
        forward=str(TcpAddress(address.behind, address.port)),
        name=str(address),
        least_s=_START_S,
    )


@contextlib.contextmanager
def running_there(address: SshAddress, command: str, deadline: Deadline) -> Iterator[Channel]:
    """A channel to a command that runs in the shell of the computer that ssh leads to.

    It goes by the connection of the tunnel if there is one. Its stdin ends with the block, and with
    this process however that ends. Whether the command then ends is its own affair. Raises OSError
    where there is no ssh.
    """
    argv = _tunnel(address).command(command)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            end = theirs.fileno()
            ssh = subprocess.Popen(argv, stdin=end, stdout=end, stderr=end, start_new_session=True)
        try:
            yield Channel(ours, deadline)
        finally:
            ssh.kill()
            ssh.wait()
