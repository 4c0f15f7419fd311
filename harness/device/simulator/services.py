"""Which service a host asks for by name, and what it gets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.device.simulator.child import spawn_with_pipes, spawn_with_terminal
from harness.device.simulator.protocol import Endpoint, Stream, StreamService
from harness.device.simulator.shell_service import ShellSession
from harness.device.simulator.storage import Storage
from harness.device.simulator.sync_service import SyncSession

_SHELL: Final = "/bin/sh"
_TERMINAL_TYPE: Final = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_SHELL_NAME: Final = re.compile(r"shell((?:,[^:]*)?):(.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class ShellRequest:
    """What a name beginning with `shell` or `exec` asks for."""

    command: str
    v2: bool
    terminal: bool
    raw_terminal: bool
    terminal_type: str | None = None

    @property
    def interactive(self) -> bool:
        return self.terminal and not self.command

    @property
    def arguments(self) -> list[str]:
        return [_SHELL, "-c", self.command] if self.command else [_SHELL]


def parse_shell(name: str) -> ShellRequest | None:
    """Reads a service name such as `shell,v2,TERM=dumb,pty:ls`; None if it is another service.

    As in adbd: a terminal where no command is given, and also, but a raw one, where the host does
    not speak protocol v2, since only the end of a terminal reaches the command there.
    """
    if name.startswith("exec:"):
        command = name.removeprefix("exec:")
        if not command:
            return None
        return ShellRequest(command, v2=False, terminal=False, raw_terminal=False)
    found = _SHELL_NAME.match(name)
    if found is None:
        return None
    command = found[2]
    v2, terminal, terminal_type = False, not command, None
    for word in found[1].split(",")[1:]:
        if word == "v2":
            v2 = True
        elif word in ("raw", "pty"):
            terminal = word == "pty"
        elif word.startswith("TERM=") and _TERMINAL_TYPE.fullmatch(word[5:]):
            terminal_type = word[5:]
    raw_terminal = not v2 and not terminal
    return ShellRequest(command, v2, terminal or raw_terminal, raw_terminal, terminal_type)


class Silence:
    """A service that neither says anything nor ends by itself."""

    def received(self, data: memoryview) -> bool:
        """Takes whatever is sent, and drops it."""
        return True

    def writable(self) -> None:
        """Nothing is ever written."""

    def closed(self) -> None:
        """Nothing is left to do."""


@dataclass
class Services:
    """The services of a booted device.

    `note` writes a line into the device's log, `reboot` takes a reason.
    """

    storage: Storage
    environment: Mapping[str, str]
    note: Callable[[str], None]
    reboot: Callable[[str], None] = lambda _: None
    _shells: set[ShellSession] = field(default_factory=set)

    def find(self, raw_name: bytes) -> StreamService | None:
        """What starts the service of that name, None if there is no such service."""
        name = os.fsdecode(raw_name)
        service = None if "\0" in name else self._find(name)
        self.note(f"{'service' if service else 'no service'} {name}")
        return service

    def kill_all(self) -> None:
        """Kills every running command."""
        for shell in self._shells:
            shell.kill()

    def _find(self, name: str) -> StreamService | None:
        request = parse_shell(name)
        if request is not None:
            return lambda stream: self._shell(stream, request)
        if name == "sync:":
            return lambda stream: SyncSession(stream, self.storage, self.note)
        if name.startswith("reboot:"):
            return lambda stream: self._reboot(name.removeprefix("reboot:"))
        return None

    def _shell(self, stream: Stream, request: ShellRequest) -> Endpoint:
        environment = dict(self.environment)
        if request.terminal_type is not None:
            environment["TERM"] = request.terminal_type
        if request.terminal:
            child = spawn_with_terminal(
                request.arguments,
                environment,
                raw=request.raw_terminal,
                interactive=request.interactive,
            )
        else:
            child = spawn_with_pipes(request.arguments, environment, joined=not request.v2)
        session = ShellSession(stream, child, v2=request.v2, on_end=self._shells.discard)
        self._shells.add(session)
        return session

    def _reboot(self, target: str) -> Endpoint:
        self.reboot(f"reboot,{target}" if target else "reboot,adb")
        return Silence()
