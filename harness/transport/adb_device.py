"""A device on an adb server: its shell, its files."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import DeviceRefused, InfraError, InternalError
from harness.transport.adb_address import has_address
from harness.transport.adb_client import MAX_REQUEST_BYTES, Device, SyncStream
from harness.transport.adb_server import STATE_ADVICE, AdbServer
from harness.transport.deadline_socket import Channel
from harness.transport.device import SHORT_S, Transport
from harness.transport.files import Progress, PushItem, RemoteStat
from harness.transport.shell import ShellCall
from harness.transport.shell_protocol import v2_script
from harness.transport.transport_errors import device_faults

UNPLUGGED: Final = "is unplugged or switched off"
"""The words of the error for a device that its adb server does not see."""

_RECONNECT_S: Final = 3.0
_KNOWN_STATES: Final = ("device", "offline")
_NEEDED: Final = ("shell_v2", "stat_v2")


class AdbDevice(Transport):
    """A device by its serial on an adb server; each call opens its own connection and closes it."""

    def __init__(self, serial: str, server: AdbServer) -> None:
        super().__init__(serial)
        self.server = server
        self._is_asked = False

    def _require_features(self, deadline: Deadline) -> None:
        """Raise DeviceRefused for a daemon older than Android 8; it is asked only once."""
        if self._is_asked:
            return
        with device_faults(self.serial, "features"):
            text: str = self._client(deadline).get_features()
        if lacking := [name for name in _NEEDED if name not in text.strip().split(",")]:
            raise DeviceRefused(
                f"its adbd is too old: it has no {' and no '.join(lacking)}; update it, or set "
                "`transport: ssh` for the device",
                serial=self.serial,
                command="features",
            )
        self._is_asked = True

    def _client(self, deadline: Deadline) -> Device:
        return self.server.client(deadline).device(self.serial)

    def open(self, call: ShellCall) -> Channel:
        """As `RemoteShell.open`. Raises InternalError for a script that no request can hold."""
        self._require_features(call.deadline)
        script = call.script if call.token is None else v2_script(call.script, call.token)
        service = f"shell,v2,raw:{script}".encode("utf-8", "surrogateescape")
        if len(service) > MAX_REQUEST_BYTES or b"\0" in service:
            problem = "does not fit into one adb request, or has a NUL; pass its data by stdin"
            raise InternalError(f"a script of {len(service)} bytes {problem}")
        return self._open(service, call.deadline, call.command)

    def _open(self, service: str | bytes, deadline: Deadline, command: str) -> Channel:
        with device_faults(self.serial, command):
            return self._client(deadline).open_service(service)

    def connect(self, *, timeout_s: float) -> None:
        """As `Transport.connect`: by its adb server, where it has an address."""
        if has_address(self.serial):
            self.server.connect(self.serial, deadline=Deadline(timeout_s))
        states = {device.serial: device.state for device in self.server.devices()}
        if self.serial not in states:
            attached = (
                ", ".join(f"{name} ({state})" for name, state in states.items()) or "no device"
            )
            reason = f"it is not attached to the {self.server}, which sees {attached}"
            raise InfraError(f"device {self.serial} {UNPLUGGED}: {reason}")
        if (state := states[self.serial]) != "device":
            advice = STATE_ADVICE.get(state, "see `adb devices -l`")
            raise InfraError(f"device {self.serial} is {state}: {advice}")

    def reconnect(self, *, timeout_s: float) -> None:
        """As `Transport.reconnect`. Raises InfraError if its adb server does not answer."""
        if has_address(self.serial):
            self.server.disconnect(self.serial)
            self.server.connect(self.serial, deadline=Deadline(timeout_s))
        elif self.server.state(self.serial, timeout_s=_RECONNECT_S) in _KNOWN_STATES:
            # the next user of the device finds out whether it helped
            with contextlib.suppress(InfraError):
                self.server.reconnect(self.serial, deadline=Deadline(_RECONNECT_S))

    def is_there(self, *, timeout_s: float) -> bool:
        """Return whether the adb server lists it as `device`. Raises InfraError."""
        return self.server.state(self.serial, timeout_s=timeout_s) == "device"

    def disconnect(self) -> None:
        """Make the adb server drop a device that is connected by TCP."""
        self.server.disconnect(self.serial)

    def reboot(self, *, timeout_s: float) -> None:
        """As `Transport.reboot`, by adbd's own service."""
        channel = self._open("reboot:", Deadline(timeout_s), "reboot")
        with contextlib.closing(channel), contextlib.suppress(OSError, EOFError):
            while channel.receive():
                pass

    def sync(self, *, timeout_s: float) -> SyncStream:
        """Open one stream for several file operations, all under one deadline."""
        deadline = Deadline(timeout_s)
        self._require_features(deadline)
        return SyncStream(self._client(deadline))

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """As `Transport.push`, over one stream; see `SyncStream.push`."""
        with self.sync(timeout_s=timeout_s) as stream:
            stream.push(files, progress)

    def pull(self, remote: str, local: Path, *, timeout_s: float, max_bytes: int) -> None:
        """As `Transport.pull`; see `SyncStream.pull`."""
        with self.sync(timeout_s=timeout_s) as stream:
            stream.pull(remote, local, max_bytes)

    def stat(self, remote: str, *, timeout_s: float = SHORT_S) -> RemoteStat | None:
        """As `Transport.stat`; see `SyncStream.stat`."""
        with self.sync(timeout_s=timeout_s) as stream:
            return stream.stat(remote)
