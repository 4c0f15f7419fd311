"""One boot of the simulated device: a process that serves adb until a stop or a reboot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.simulator import logcat, programs
from harness.simulator.auth import PublicKey
from harness.simulator.board import Board
from harness.simulator.connection import Connection, Identity
from harness.simulator.properties import banner
from harness.simulator.services import Services
from harness.simulator.storage import Storage

REBOOT: Final = 75
"""Exit code of a boot that wants to be followed by another one."""

_MAX_LOG_BYTES: Final = 1 << 20
_LOG_LOOK_EVERY: Final = 256
_BACKLOG: Final = 128


@dataclass(frozen=True)
class DeviceSettings:
    """What stays the same over all boots of a device.

    `reboot_s`: seconds it is away then. `board`: what it is if its programs are not the host's.
    """

    storage: Path
    properties: Mapping[str, str]
    key: PublicKey
    features: frozenset[str]
    storage_limit_bytes: int | None
    reboot_s: float
    board: Board | None = None


class DeviceLog:
    """The daemon's lines in the device's log; a full log loses its older half."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = 0

    def note(self, text: str) -> None:
        """Adds a line; a log that cannot be written is no reason to stop serving."""
        pid = os.getpid()
        entries = logcat.entries_of("I", "adbd", text, pid=pid, seconds=time.time())
        with contextlib.suppress(OSError):
            logcat.append(self._path, entries)
            self._lines += 1
            if self._lines % _LOG_LOOK_EVERY == 0 and self._path.stat().st_size > _MAX_LOG_BYTES:
                self._halve()

    def _halve(self) -> None:
        kept = self._path.read_bytes()[-_MAX_LOG_BYTES // 2 :]
        fresh = self._path.with_name("fresh")
        fresh.write_bytes(kept[kept.find(b"\n") + 1 :])
        fresh.replace(self._path)


def run_boot(settings: DeviceSettings, *, port: int, lifeline: int, ready: int, reason: str) -> int:
    """Serves on 127.0.0.1:`port` until `lifeline` ends or a reboot is asked for.

    `lifeline` is a pipe whose other end the supervisor holds, `ready` one that gets a byte once
    the port is open. Returns the exit code for the process. Raises OSError if it cannot start.
    """
    os.setsid()
    os.umask(0o022)
    programs.install(
        settings.storage,
        settings.properties,
        limit_bytes=settings.storage_limit_bytes,
        reason=reason,
        board=settings.board,
    )
    os.chdir(settings.storage)
    return asyncio.run(_serve(settings, port, lifeline, ready, reason))


async def _serve(
    settings: DeviceSettings, port: int, lifeline: int, ready: int, reason: str
) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    log = DeviceLog(settings.storage / programs.LOG_FILE)

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def reboot(why: str) -> None:
        log.note(f"rebooting: {why}")
        # only after the answer to the request has had its turn on the loop
        loop.call_soon(end, REBOOT)

    services = Services(
        storage=Storage(settings.storage, limit_bytes=settings.storage_limit_bytes),
        environment=programs.environment(settings.storage, settings.board),
        features=settings.features,
        note=log.note,
        reboot=reboot,
    )
    identity = Identity(banner(settings.properties, settings.features), settings.key)
    connections: dict[Connection, None] = {}
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # inherited by every connection; asyncio sets it only where the protocol was named
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind(("127.0.0.1", port))
    server = await loop.create_server(
        lambda: Connection(identity, services.find, log.note, connections),
        sock=listener,
        backlog=_BACKLOG,
    )
    loop.add_reader(lifeline, end, 0)
    loop.add_signal_handler(signal.SIGTERM, end, 0)
    loop.add_signal_handler(signal.SIGHUP, reboot, "reboot,shell")
    log.note(f"booted: {reason}, features {','.join(sorted(settings.features))}")
    os.write(ready, b"1")
    code = await ended
    server.close()
    for connection in list(connections):
        connection.drop()
    services.kill_all()
    return code
