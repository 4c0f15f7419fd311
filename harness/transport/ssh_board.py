"""A board with sshd and no adbd: its shell and its files, over one shared connection.

The connection is that of `ssh`, which checks each byte: what arrives is what was sent, or the
connection has ended.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import DeviceLost, DeviceTimeout
from harness.transport.command_device import CommandTransport
from harness.transport.deadline_socket import Channel
from harness.transport.shell import ShellCall
from harness.transport.shell_protocol import TOKEN_VARIABLE
from harness.transport.ssh_connection import SshLogin, shared_connection
from harness.transport.transport_errors import device_faults

_RETRY_S: Final = 0.5
_END_S: Final = 2.0
_REBOOT: Final = (
    f"(unset {TOKEN_VARIABLE};command -v setsid >/dev/null&&s=setsid;"
    "exec $s sh -c 'reboot||sudo -n reboot')& wait $!"
)
_HOPELESS: Final = (
    *("Permission denied", "Too many authentication failures", "Host key verification failed"),
    *("Could not resolve", "Bad port"),
)
"""Messages of ssh after which it is no use to try again at once."""


class SshBoard(CommandTransport):
    """A board by its address; `serial` is that address.

    Calls share one connection, which the first of them opens and which lasts as long as this
    process.
    """

    def __init__(self, login: SshLogin) -> None:
        super().__init__(str(login))
        self.login = login
        self._connection = shared_connection(login, ("board", login), name="it")

    def __repr__(self) -> str:
        return f"SshBoard({self.login})"

    def command(self, script: str) -> list[str]:
        return self._connection.command(f"exec sh -c {shlex.quote(script)}")

    def open(self, call: ShellCall) -> Channel:
        """As `RemoteShell.open`. Raises ConfigError where this computer has no ssh."""
        with device_faults(self.serial, call.command):
            self._connection.require(call.deadline.remaining() or 1e-3)
        return super().open(call)

    def connect(self, *, timeout_s: float) -> None:
        """As `Transport.connect`: check that we can log in, and that its login shell runs commands.

        A board that is booting is tried until the deadline.
        """
        deadline, lost = Deadline(timeout_s), None
        while True:
            try:
                super().connect(timeout_s=deadline.remaining())
                return
            except DeviceTimeout as error:
                # the earlier reason says more than that the last attempt took too long
                raise lost or error from None
            except DeviceLost as error:
                lost = error
                hopeless = any(words in error.problem for words in _HOPELESS)
                if hopeless or deadline.remaining() < _RETRY_S:
                    raise
            time.sleep(_RETRY_S)

    def reconnect(self, *, timeout_s: float) -> None:
        """As `Transport.reconnect`, for all that share the connection."""
        deadline = Deadline(timeout_s)
        self._connection.end(timeout_s=deadline.at_most(_END_S).seconds)
        self.connect(timeout_s=deadline.remaining())

    def disconnect(self) -> None:
        """End the shared connection."""
        self._connection.end(timeout_s=_END_S)

    def reboot(self, *, timeout_s: float) -> None:
        """As `Transport.reboot`, by the command `reboot`, which needs root or sudo.

        The command outlives the call, so that the caller can wait for the board although the
        command is slow or the connection ends.
        """
        with contextlib.suppress(DeviceLost, DeviceTimeout):
            completed = self.shell(_REBOOT, timeout_s=timeout_s, doing="reboot")
            if not completed.ok:
                raise self._refused("its `reboot` command failed", "reboot", completed.stderr)
