"""This computer as a device: its shell, its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from harness.core.errors import InfraError
from harness.transport.command_device import Bridge, CommandTransport
from harness.transport.deadline_socket import Channel
from harness.transport.shell import ShellCall
from harness.transport.shell_protocol import v2_script

SERIAL: Final = "this-computer"


class ThisComputer(CommandTransport):
    """Runs scripts here. A process that a script becomes by `exec` is our own child."""

    def __init__(self) -> None:
        super().__init__(SERIAL)
        self._env: dict[str, str] | None = None
        self._leaves_nothing = False

    @classmethod
    def for_plans(cls, env: Mapping[str, str]) -> ThisComputer:
        """Return this computer for plans that need no device; their environment is `env` and PATH.

        Their processes end with them. `end_leftovers` of a lab's device that is this computer does
        not touch them.
        """
        computer = cls()
        computer.serial = "this-host"
        computer._env = {"PATH": os.environ.get("PATH", os.defpath), **env}
        computer._leaves_nothing = True
        return computer

    def command(self, script: str) -> list[str]:
        return ["sh", "-c", script]

    def open(self, call: ShellCall) -> Channel:
        """As `RemoteShell.open`. Raises InfraError if no shell can be started."""
        script = call.script if call.token is None else v2_script(call.script, call.token)
        try:
            bridge = Bridge(
                self.command(script), env=self._env, leaves_nothing=self._leaves_nothing
            )
        except (OSError, ValueError) as error:
            raise InfraError(f"cannot start a shell on this computer: {error}") from error
        return Channel(bridge.socket, call.deadline)

    def connect(self, *, timeout_s: float) -> None:
        """Do nothing: there is no connection."""

    def reboot(self, *, timeout_s: float) -> None:
        """Raise DeviceRefused: the tests run here, too."""
        raise self._refused("the harness does not reboot this computer", "reboot")
