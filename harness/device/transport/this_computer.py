"""This computer as a device: its shell, its files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.device.transport.bridge import Bridge
from harness.device.transport.channel import Channel
from harness.device.transport.device import SHORT_S, PacketTransport
from harness.device.transport.files import (
    BLOCK_BYTES,
    Progress,
    PushItem,
    RemoteStat,
    opened,
    path_bytes,
)
from harness.device.transport.link import ShellCall
from harness.device.transport.shell_protocol import v2_script
from harness.ground.errors import DeviceTimeout, InfraError
from harness.ground.files.whole_file import open_regular
from harness.ground.host.deadline import Deadline

SERIAL: Final = "this-computer"


class ThisComputer(PacketTransport):
    """Runs scripts here. A process that a script becomes by `exec` is our own child."""

    def __init__(self) -> None:
        super().__init__(SERIAL)
        self._env: dict[str, str] | None = None
        self._leaves_nothing = False

    @classmethod
    def for_plans(cls, env: Mapping[str, str]) -> ThisComputer:
        """This computer for plans that need no device: `env` and PATH are all of their environment.

        What they have begun ends with them. `end_leftovers` of a device that is this computer, too,
        does not touch it.
        """
        made = cls()
        made.serial = "this-host"
        made._env = {"PATH": os.environ.get("PATH", os.defpath), **env}
        made._leaves_nothing = True
        return made

    def open(self, call: ShellCall) -> Channel:
        """As `Link.open`. Raises InfraError if no shell can be started."""
        script = call.script if call.token is None else v2_script(call.script, call.token)
        try:
            bridge = Bridge(
                ["sh", "-c", script], env=self._env, leaves_nothing=self._leaves_nothing
            )
        except (OSError, ValueError) as error:
            raise InfraError(f"cannot start a shell on this computer: {error}") from error
        return Channel(bridge.socket, call.deadline)

    def connect(self, *, timeout_s: float) -> None:
        """Nothing: it is here."""

    def reconnect(self, *, timeout_s: float) -> None:
        """Nothing: it is here."""

    def disconnect(self) -> None:
        """Nothing: there is no connection."""

    def is_there(self, *, timeout_s: float) -> bool:
        """Whether it can be asked: it is here."""
        return True

    def reboot(self, *, timeout_s: float) -> None:
        """Raises DeviceRefused: whoever runs the tests runs here, too."""
        raise self._refused("this computer is not rebooted", "reboot")

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """As `Transport.push`: copies them."""
        deadline, sent = Deadline(timeout_s), 0
        for file in files:
            command = f"push {file.remote}"
            with self._faults(command), opened(file) as content:
                path = path_bytes(file.remote)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # it may be running
                with open(path, "xb", buffering=0) as target:
                    for block in self._in_time(content.blocks, deadline, command):
                        target.write(block)
                        sent += len(block)
                        if progress is not None:
                            progress(sent)
                    os.fchmod(target.fileno(), file.mode)
                os.utime(path, (content.mtime_s, content.mtime_s))

    def _in_time(
        self, blocks: Iterable[bytes], deadline: Deadline, command: str
    ) -> Iterator[bytes]:
        for block in blocks:
            yield block
            if deadline.expired:
                problem = f"not done within {deadline.seconds:g} s"
                raise DeviceTimeout(problem, serial=self.serial, command=command)

    def stat(
        self, remote: str, *, timeout_s: float = SHORT_S, follow: bool = True
    ) -> RemoteStat | None:
        """As `Transport.stat`."""
        with self._faults(f"stat {remote}"):
            try:
                found = os.stat(path_bytes(remote), follow_symlinks=follow)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return RemoteStat(found.st_mode, found.st_size, int(found.st_mtime))

    def _fetch(
        self, remote: str, take: Callable[[bytes], None], deadline: Deadline, command: str
    ) -> None:
        with self._faults(command), open_regular(Path(remote)) as source:
            blocks = iter(lambda: source.read(BLOCK_BYTES), b"")
            for block in self._in_time(blocks, deadline, command):
                take(block)

    @contextlib.contextmanager
    def _faults(self, command: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refused(error.strerror or str(error), command) from error
