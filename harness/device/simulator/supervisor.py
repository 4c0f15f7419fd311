"""Boots a simulated device again and again, and leaves nothing of it behind.

A boot is a process that serves adb until a stop or a reboot. The supervisor is the one process that
outlives it. Whatever a boot's commands leave behind is handed to the supervisor by the kernel (it
is their subreaper), so that after a reboot, a crash or the end nothing of the device is left, also
what has made itself a session of its own. Should the supervisor itself be killed, the boot sees its
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
import sys
import time
from pathlib import Path
from typing import Final

from harness.device.simulator import logcat, programs
from harness.device.simulator.auth import PublicKey
from harness.device.simulator.child import process_table
from harness.device.simulator.connection import Connection
from harness.device.simulator.device import DeviceSettings
from harness.device.simulator.fixed_paths import enter_namespace, mapped
from harness.device.simulator.held_port import HeldPort
from harness.device.simulator.properties import banner
from harness.device.simulator.services import Services
from harness.device.simulator.storage import Storage
from harness.ground.errors import InfraError

# Exit code of a boot that wants to be followed by another one.
_REBOOT: Final = 75
_START_S: Final = 15.0
_STOP_S: Final = 3.0
_QUICK_CRASH_S: Final = 5.0
_MAX_QUICK_CRASHES: Final = 10
_STDIN: Final = 0
_PR_SET_CHILD_SUBREAPER: Final = 36
_MAX_LOG_BYTES: Final = 1 << 20
_LOG_LOOK_EVERY: Final = 256


class DeviceLog:
    """The daemon's lines in the device's log; a full log loses its older half."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = 0

    def note(self, text: str) -> None:
        """Adds a line; a log that cannot be written is no reason to stop serving."""
        with contextlib.suppress(OSError):
            logcat.append(self._path, "I", "adbd", text, pid=os.getpid())
            self._lines += 1
            if self._lines % _LOG_LOOK_EVERY == 0 and self._path.stat().st_size > _MAX_LOG_BYTES:
                self._halve()

    def _halve(self) -> None:
        kept = self._path.read_bytes()[-_MAX_LOG_BYTES // 2 :]
        fresh = self._path.with_name("fresh")
        fresh.write_bytes(kept[kept.find(b"\n") + 1 :])
        fresh.replace(self._path)


def run_boot(
    settings: DeviceSettings,
    key: PublicKey,
    *,
    port: HeldPort,
    lifeline: int,
    ready: int,
    reason: str,
) -> int:
    """Serves on `port` until `lifeline` ends or a reboot is asked for.

    `lifeline` is a pipe whose other end the supervisor holds, `ready` one that gets a byte once
    the port is open. Returns the exit code for the process. Raises OSError if it cannot start.
    """
    os.setsid()
    os.umask(0o022)
    programs.install(settings, reason)
    log = DeviceLog(settings.storage / programs.LOG_FILE)
    fixed = mapped(str(settings.storage))
    why_not = enter_namespace(fixed, str(settings.storage / programs.NEW_ROOT))
    if why_not is not None:
        log.note(f"commands do not find {', '.join(fixed)}: {why_not}")
    # as on a phone; without a root of their own, commands would write into this computer's
    os.chdir("/" if why_not is None else settings.storage)
    services = Services(
        storage=Storage(settings.storage, fixed=fixed, limit_bytes=settings.storage_limit_bytes),
        environment=programs.environment(settings.storage, settings.board),
        note=log.note,
    )
    greeting = banner(settings.properties)
    log.note(f"booted: {reason}")
    return asyncio.run(_serve(services, greeting, key, port, lifeline, ready))


async def _serve(
    services: Services, greeting: bytes, key: PublicKey, port: HeldPort, lifeline: int, ready: int
) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def reboot(why: str) -> None:
        services.note(f"rebooting: {why}")
        # only after the answer to the request has had its turn on the loop
        loop.call_soon(end, _REBOOT)

    services.reboot = reboot
    connections: dict[Connection, None] = {}
    port.listen()
    server = await loop.create_server(
        lambda: Connection(greeting, key, services.find, services.note, connections),
        sock=port.socket.dup(),  # closed with the server
        backlog=HeldPort.BACKLOG,
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
    """Boots the device again and again until stdin ends or a signal says stop."""

    def __init__(self, settings: DeviceSettings, key: PublicKey) -> None:
        self._settings = settings
        self._key = key
        self._stopped = False
        self._boot = 0
        self._status: int | None = None
        self._port = HeldPort()
        self._wake, self._waker = os.pipe()
        for fd in (self._wake, self._waker):
            os.set_blocking(fd, False)

    def run(self) -> None:
        """Returns when the device was told to stop.

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
                    raise InfraError("the simulated device crashes whenever it has booted")
            if not self._stopped:
                self._wait(self._settings.reboot_s)

    def _on_signal(self, number: int, _: object) -> None:
        if number != signal.SIGCHLD:
            self._stopped = True

    def _start_boot(self, reason: str) -> int:
        """Starts a boot and returns the pipe that keeps it alive, once it serves."""
        lifeline, ours = os.pipe()
        ready, theirs = os.pipe()
        self._status = None
        self._boot = os.fork()
        if self._boot == 0:
            os._exit(self._be_the_boot(lifeline, ours, theirs, reason))
        os.close(lifeline)
        os.close(theirs)
        arrived, _, _ = select.select([ready], [], [], _START_S)
        serves = bool(arrived) and os.read(ready, 1) == b"1"
        os.close(ready)
        if not serves:
            os.close(ours)
            self._wait_for_end(_STOP_S)
            end_children(_STOP_S)
            raise InfraError("the simulated device does not boot; see the lines above")
        return ours

    def _be_the_boot(self, lifeline: int, ours: int, ready: int, reason: str) -> int:
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
        """Waits for the boot to end: so long, then it is killed; without a limit until a stop."""
        until = None if seconds is None else time.monotonic() + seconds
        while self._status is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                os.kill(self._boot, signal.SIGKILL)
                left = 0.01
            elif until is None and self._stopped:
                return
            self._poll(left)
            self._reap()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopped and (left := until - time.monotonic()) > 0:
            self._poll(left)

    def _poll(self, seconds: float | None) -> None:
        watched = [self._wake]
        if not self._stopped:
            watched.append(_STDIN)
        arrived, _, _ = select.select(watched, [], [], seconds)
        if self._wake in arrived:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 512)
        if len(arrived) > (self._wake in arrived) and not os.read(_STDIN, 512):
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
    """Kills and reaps every child of this process, and what becomes its child by that."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
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
