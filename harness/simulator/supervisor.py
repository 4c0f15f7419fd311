"""Supervision of a simulated device: boots it again and again, and cleans up at the end.

A boot is a process that serves adb until a stop or a reboot. The supervisor is the one process that
outlives it. The kernel hands processes that a boot's commands leave behind to the supervisor (it
is their subreaper), so that after a reboot, a crash or the end no process is left, not even one
in a session of its own. If the supervisor itself is killed, the boot sees its
lifeline end and kills its commands.

This takes the place of PR_SET_PDEATHSIG, which reaches only direct children, is lost by programs
that change their user, and can only be set by code between fork and exec: 0.5 ms a command more.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from harness.core.errors import InfraError
from harness.simulator import boot_files, logcat, protocol
from harness.simulator.auth import TOKEN_BYTES, PublicKey, parse_public_key, verify
from harness.simulator.boot_files import banner
from harness.simulator.child import process_table
from harness.simulator.device import DeviceSettings
from harness.simulator.fixed_paths import enter_namespace, map_fixed_paths
from harness.simulator.protocol import (
    AdbPacketReader,
    BadPacket,
    Packet,
    Payload,
    Streams,
    StreamService,
)
from harness.simulator.services import Services
from harness.simulator.storage import Storage

_TRIES: Final = 16


class BoundPort:
    """A port of 127.0.0.1, bound as long as this process or a fork of it has it open.

    It refuses connections until `listen`, and again after `refuse`. No other process can bind it in
    between: Linux lets two sockets of any processes share a port without a listener if both set
    SO_REUSEADDR, so this one sets it only at `listen`, where connections that have ended would
    keep the port from being used again for a minute.
    """

    BACKLOG: Final = 128

    def __init__(self) -> None:
        self.socket = _bind_port()
        # inherited by every connection; asyncio sets it only where the protocol was named
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def number(self) -> int:
        number: int = self.socket.getsockname()[1]
        return number

    def listen(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.listen(self.BACKLOG)

    def refuse(self) -> None:
        """Refuse connections again, in all processes that have it open; safe to call twice.

        None of them may accept connections at this time: one that is accepted now inherits that it
        does not share the port, and keeps it from being used for a minute after its end.
        """
        # Before `shutdown`: another process could bind the port in between.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        # Only if listening: else later connections would inherit it.
        if self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            self.socket.shutdown(socket.SHUT_RDWR)


def _bind_port() -> socket.socket:
    for _ in range(_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = probe.getsockname()
        bound = socket.socket()
        try:
            # by number: a port that the kernel chose is freed by `shutdown`
            bound.bind(address)
            return bound
        except OSError:
            bound.close()
    raise InfraError("no port of 127.0.0.1 is free")


HELLO_S: Final = 10.0
"""Time limit for the first packet of a connection, in seconds."""

MAX_CONNECTIONS: Final = 64
"""Above this number the oldest unauthenticated connection is dropped."""

_MAX_SIGNATURES: Final = 256
_JOINED_BYTES: Final = 16 * 1024
# Far above one write per stream in use: only a host that does not read gets there.
_HIGH_WATER_BYTES: Final = 16 << 20


class Connection(asyncio.BufferedProtocol):
    """The device's end of a connection.

    `banner` describes the device, `key` is the only accepted key; `others` has
    all connections of the device.
    """

    def __init__(
        self,
        banner: bytes,
        key: PublicKey,
        find_service: Callable[[bytes], StreamService | None],
        note: Callable[[str], None],
        others: dict[Connection, None],
    ) -> None:
        self._banner = banner
        self._key = key
        self._find_service = find_service
        self._note = note
        self._others = others
        self._transport: asyncio.Transport | None = None
        self._reader = AdbPacketReader(protocol.MAX_HANDSHAKE_PAYLOAD)
        self._streams: Streams | None = None
        self._greeted = False
        self._max_payload = 0
        self._token: bytes | None = None
        self._signatures = 0
        self._hello: asyncio.TimerHandle | None = None

    @property
    def online(self) -> bool:
        return self._streams is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._hello = asyncio.get_running_loop().call_later(HELLO_S, self.drop)
        self._others[self] = None
        if len(self._others) > MAX_CONNECTIONS:
            for other in self._others:
                if not other.online:
                    other.drop()
                    break

    def connection_lost(self, error: Exception | None) -> None:
        self._others.pop(self, None)
        self._transport = None
        if self._hello is not None:
            self._hello.cancel()
        self._offline()

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.filled(nbytes)
        try:
            while self._transport is not None and (packet := self._reader.next()) is not None:
                self._handle(packet)
        except BadPacket as error:
            self._note(f"connection dropped: {error}")
            self.drop()

    def _handle(self, packet: Packet) -> None:
        if packet.command == protocol.CNXN:
            self._greet(packet)
            return
        if not self._greeted:
            raise BadPacket("the first packet is not CNXN")
        if packet.command == protocol.AUTH:
            self._authenticate(packet)
        elif self._streams is not None:
            self._streams.handle(packet)
        # adbd ignores everything else from a host that is not online

    def _greet(self, packet: Packet) -> None:
        if self._hello is not None:
            self._hello.cancel()
        self._offline()
        if packet.arg1 < protocol.MIN_PAYLOAD:
            raise BadPacket(f"a maximum payload of {packet.arg1} bytes is too small")
        if packet.arg0 < protocol.VERSION:
            raise BadPacket(f"adb protocol {packet.arg0:#x} is too old (before 2017)")
        self._greeted = True
        self._max_payload = min(packet.arg1, protocol.MAX_PAYLOAD)
        self._challenge()

    def _challenge(self) -> None:
        self._token = os.urandom(TOKEN_BYTES)
        self._send_checked(protocol.AUTH, protocol.AUTH_TOKEN, 0, self._token)

    def _authenticate(self, packet: Packet) -> None:
        payload = bytes(packet.payload)
        if packet.arg0 == protocol.AUTH_SIGNATURE and self._token is not None:
            token, self._token = self._token, None
            self._signatures += 1
            if verify(self._key, token, payload):
                self._online()
            elif self._signatures >= _MAX_SIGNATURES:
                raise BadPacket("too many signatures by unknown keys")
            else:
                self._challenge()
        elif packet.arg0 == protocol.AUTH_RSAPUBLICKEY and self._streams is None:
            # A phone would ask its user now. Here the host stays unauthorized.
            try:
                offered = parse_public_key(payload).fingerprint
            except ValueError as error:
                offered = f"({error})"
            self._note(f"refused key {offered}, only {self._key.fingerprint} is accepted")

    def _online(self) -> None:
        self._reader.resize(protocol.MAX_PAYLOAD)
        self._streams = Streams(self._send, self._find_service, max_payload=self._max_payload)
        self._send_checked(protocol.CNXN, protocol.VERSION, protocol.MAX_PAYLOAD, self._banner)
        self._note("host connected")

    def _offline(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.close_all()

    def _send_checked(self, command: int, arg0: int, arg1: int, payload: bytes) -> None:
        """Send a packet of the handshake with a checksum, which any host may verify."""
        if self._transport is not None:
            check = sum(payload) & 0xFFFFFFFF
            head = protocol.header(command, arg0, arg1, len(payload), check)
            self._transport.write(head + payload)

    def _send(self, command: int, arg0: int, arg1: int, payload: Payload) -> None:
        if self._transport is None:
            return
        head = protocol.header(command, arg0, arg1, len(payload))
        if len(payload) <= _JOINED_BYTES:
            self._transport.write(head + payload)
        else:
            self._transport.write(head)
            self._transport.write(payload)


# Exit code of a boot that requests another one.
_REBOOT: Final = 75
_START_S: Final = 15.0
_STOP_S: Final = 3.0
_QUICK_CRASH_S: Final = 5.0
_MAX_QUICK_CRASHES: Final = 10
_STDIN: Final = 0
_PR_SET_CHILD_SUBREAPER: Final = 36
_MAX_LOG_BYTES: Final = 1 << 20


def note(log: Path, text: str) -> None:
    """Add the daemon's line to the device's log; a full log loses its older half.

    A log that cannot be written is ignored.
    """
    with contextlib.suppress(OSError):
        logcat.append(log, "I", "adbd", text, pid=os.getpid())
        if log.stat().st_size > _MAX_LOG_BYTES:
            newest = log.read_bytes()[-_MAX_LOG_BYTES // 2 :]
            fresh = log.with_name("fresh")
            fresh.write_bytes(newest[newest.find(b"\n") + 1 :])
            fresh.replace(log)


def run_boot(
    settings: DeviceSettings,
    key: PublicKey,
    *,
    port: BoundPort,
    lifeline: int,
    ready: int,
    reason: str,
) -> int:
    """Serve on `port` until `lifeline` ends or a reboot is requested.

    `lifeline` is a pipe whose other end the supervisor holds, `ready` one that gets a byte once
    the port is open. Returns the exit code for the process. Raises OSError if it cannot start.
    """
    os.setsid()
    os.umask(0o022)
    boot_files.install(settings, reason)
    log = partial(note, settings.storage / boot_files.LOG_FILE)
    fixed = map_fixed_paths(str(settings.storage))
    why_not = enter_namespace(fixed, str(settings.storage / boot_files.NEW_ROOT))
    if why_not is not None:
        log(f"{', '.join(fixed)} will be missing for commands: {why_not}")
    # as on a phone; without a root of their own, commands would write into this computer's
    os.chdir("/" if why_not is None else settings.storage)
    services = Services(
        storage=Storage(settings.storage, fixed=fixed, limit_bytes=settings.storage_limit_bytes),
        environment=boot_files.environment(settings.storage, settings.board),
        note=log,
    )
    log(f"booted: {reason}")
    return asyncio.run(_serve(services, banner(settings.properties), key, port, lifeline, ready))


async def _serve(
    services: Services, greeting: bytes, key: PublicKey, port: BoundPort, lifeline: int, ready: int
) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def reboot(why: str) -> None:
        services.note(f"rebooting: {why}")
        # only after the loop has sent the answer to the request
        loop.call_soon(end, _REBOOT)

    services.reboot = reboot
    connections: dict[Connection, None] = {}
    port.listen()
    server = await loop.create_server(
        lambda: Connection(greeting, key, services.find, services.note, connections),
        sock=port.socket.dup(),  # closed with the server
        backlog=BoundPort.BACKLOG,
    )
    loop.add_reader(lifeline, end, 0)
    loop.add_signal_handler(signal.SIGTERM, end, 0)
    loop.add_signal_handler(signal.SIGHUP, reboot, "reboot,shell")
    os.write(ready, b"1")
    code = await ended
    server.close()
    port.refuse()
    for connection in list(connections):
        connection.drop()
    services.kill_all()
    return code


class Supervisor:
    """Boots the device again and again until stdin ends or a signal stops it."""

    def __init__(self, settings: DeviceSettings, key: PublicKey) -> None:
        self._settings = settings
        self._key = key
        self._stopped = False
        self._boot = 0
        self._status: int | None = None
        self._port = BoundPort()
        self._wake, self._waker = os.pipe()
        for fd in (self._wake, self._waker):
            os.set_blocking(fd, False)

    def run(self) -> None:
        """Boot the device until it is stopped.

        Raises InfraError if it cannot boot, or crashes again and again right after it has.
        """
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise InfraError(f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(ctypes.get_errno())}")
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        reason, announced, quick_crashes = "cold", False, 0
        while not self._stopped:
            started = time.monotonic()
            lifeline = self._start_boot(reason)
            try:
                if not announced:
                    print(json.dumps({"port": self._port.number}), flush=True)
                    announced = True
                self._wait_for_end(None)
            finally:
                os.close(lifeline)
                self._wait_for_end(_STOP_S)
                self._port.refuse()
                end_children(_STOP_S)
            if self._status == _REBOOT:
                reason = "reboot"
            elif not self._stopped:
                print(f"the device crashed (status {self._status})", file=sys.stderr, flush=True)
                reason = "kernel_panic"
                quick = time.monotonic() - started < _QUICK_CRASH_S
                quick_crashes = quick_crashes + 1 if quick else 0
                if quick_crashes >= _MAX_QUICK_CRASHES:
                    raise InfraError("the simulated device crashes after every boot")
            if not self._stopped:
                self._wait(self._settings.reboot_s)

    def _on_signal(self, number: int, _: object) -> None:
        if number != signal.SIGCHLD:
            self._stopped = True

    def _start_boot(self, reason: str) -> int:
        """Start a boot and return the pipe that keeps it alive, once it serves."""
        lifeline, ours = os.pipe()
        ready, theirs = os.pipe()
        self._status = None
        self._boot = os.fork()
        if self._boot == 0:
            os._exit(self._run_child(lifeline, ours, theirs, reason))
        os.close(lifeline)
        os.close(theirs)
        readable, _, _ = select.select([ready], [], [], _START_S)
        serves = bool(readable) and os.read(ready, 1) == b"1"
        os.close(ready)
        if not serves:
            os.close(ours)
            self._wait_for_end(_STOP_S)
            end_children(_STOP_S)
            raise InfraError("the simulated device does not boot; see the lines above")
        return ours

    def _run_child(self, lifeline: int, ours: int, ready: int, reason: str) -> int:
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.close(ours)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            return run_boot(
                self._settings,
                self._key,
                port=self._port,
                lifeline=lifeline,
                ready=ready,
                reason=reason,
            )
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr.flush()
            return 70

    def _wait_for_end(self, seconds: float | None) -> None:
        """Wait for the boot to end, and kill it after a time limit; without one until a stop."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._status is None:
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                os.kill(self._boot, signal.SIGKILL)
                remaining = 0.01
            elif deadline is None and self._stopped:
                return
            self._poll(remaining)
            self._reap()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopped and (remaining := deadline - time.monotonic()) > 0:
            self._poll(remaining)

    def _poll(self, seconds: float | None) -> None:
        watched = [self._wake]
        if not self._stopped:
            watched.append(_STDIN)
        readable, _, _ = select.select(watched, [], [], seconds)
        if self._wake in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 512)
        if len(readable) > (self._wake in readable) and not os.read(_STDIN, 512):
            self._stopped = True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._boot:
                    self._status = os.waitstatus_to_exitcode(status)


def end_children(seconds: float) -> None:
    """Kill and reap every child of this process, also those that are handed to it then."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid, parent, _ in process_table():
            if parent == os.getpid():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
