"""What leads to the shell of one device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from harness.device.transport.channel import Channel
from harness.ground.host.deadline import Deadline


@dataclass(frozen=True)
class ShellCall:
    """A script to be begun; `command` names it in errors.

    With `token`, all that it starts carries that, and it tells its process group first
    (`shell_protocol.Banner`).
    """

    script: str
    deadline: Deadline
    command: str
    token: str | None = None


class Link(Protocol):
    """Opens shells on one device, each with a connection of its own."""

    @property
    def serial(self) -> str: ...

    def open(self, call: ShellCall) -> Channel:
        """Begins a script and returns the channel to it, which the caller closes.

        Raises DeviceLost if the device is not there, DeviceRefused if we are not let in,
        DeviceTimeout at the deadline.
        """
        ...
