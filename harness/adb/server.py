"""A running adb server: what it sees, connecting devices to it, opening services on them."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from adbutils.errors import AdbTimeout

from harness.adb.binary import adb_binary, start_user_server
from harness.adb.connection import BoundedConnection
from harness.adb.deadline import Deadline
from harness.adb.faults import AdbFailError, device_faults, server_faults
from harness.adb.guard import GuardedProcess, spawn_guarded
from harness.adb.key import harness_key
from harness.adb.listing import SeenDevice, parse_devices
from harness.errors import InfraError

__all__ = ["AdbServer", "PrivateAdbServer", "SeenDevice", "adb_binary"]

_REQUEST_S = 5.0
_RETRY_S = 0.1
_START_S = 10.0
_HOPELESS = ("failed to resolve", "empty address", "bad port", "invalid port", "missing port")
_HINTS = {
    "unauthorized": "the device does not accept our key; on a phone, unlock it and accept it",
    "offline": "the device does not answer adb",
    "no permissions": "the user may not open its USB node; add a udev rule",
}


@dataclass(frozen=True)
class AdbServer:
    """An adb server by its address: ours, the user's (the default) or one on another host.

    Holds no connection and no state: safe to share between threads. Nothing here starts a server
    but `ensure_running`.
    """

    host: str = "127.0.0.1"
    port: int = 5037

    def __str__(self) -> str:
        return f"adb server at {self.host}:{self.port}"

    @property
    def start_command(self) -> str:
        """What a person types to start it, on the host where it is."""
        if is_loopback(self.host):
            return "adb start-server" if self.port == 5037 else f"adb -P {self.port} start-server"
        return f"adb -a -P {self.port} nodaemon server"

    def _faults(
        self, what: str, *, but: tuple[type[BaseException], ...] = ()
    ) -> contextlib.AbstractContextManager[None]:
        where = "" if is_loopback(self.host) else f" on {self.host}"
        return server_faults(what, but=but, start=self.start_command + where)

    def is_running(self, *, timeout_s: float = _REQUEST_S) -> bool:
        """Whether an adb server answers there."""
        try:
            self.version(deadline=Deadline(timeout_s))
        except InfraError:
            return False
        return True

    def version(self, *, deadline: Deadline) -> int:
        """The server's protocol version (41 for adb 29 to 36). Raises InfraError."""
        answer = self.query("host:version", deadline=deadline)
        with self._faults(str(self)):
            return int(answer, 16)

    def ensure_running(self, *, deadline: Deadline) -> None:
        """Starts the user's own server with `adb start-server` if none answers.

        Raises InfraError if that fails or takes too long, or if the server is on another host.
        """
        if self.is_running(timeout_s=deadline.at_most(_REQUEST_S).remaining()):
            return
        if not is_loopback(self.host):
            raise InfraError(f"{self} does not answer, and it is not on this host: start it there")
        start_user_server(self.port, deadline)
        if not self.is_running(timeout_s=deadline.at_most(_REQUEST_S).remaining()):
            raise InfraError(f"{self} was started but does not answer")

    def query(self, request: str, *, deadline: Deadline) -> str:
        """Sends one host request and returns its answer.

        Raises InfraError, its text the server's own where it said FAIL.
        """
        with self._faults(str(self)):
            return self._query(request, deadline)

    def _query(self, request: str, deadline: Deadline) -> str:
        with BoundedConnection(self.host, self.port, deadline) as connection:
            connection.send_command(request)
            connection.check_okay()
            answer: str = connection.read_string_block()
            return answer

    def devices(self, *, timeout_s: float = _REQUEST_S) -> list[SeenDevice]:
        """Every device the server knows, whatever its state. Raises InfraError."""
        return parse_devices(self.query("host:devices-l", deadline=Deadline(timeout_s)))

    def state(self, serial: str, *, deadline: Deadline) -> str | None:
        """The state of one device as in `SeenDevice`, None if the server does not know it."""
        found = parse_devices(self.query("host:devices-l", deadline=deadline))
        return next((seen.state for seen in found if seen.serial == serial), None)

    def features(self, serial: str, *, deadline: Deadline) -> frozenset[str]:
        """What the device's daemon can do. Raises DeviceError."""
        with device_faults(serial, "features"):
            text = self._query(f"host-serial:{serial}:features", deadline)
        return frozenset(filter(None, text.strip().split(",")))

    def transport(
        self, serial: str, service: str | bytes, deadline: Deadline, *, command: str | None = None
    ) -> socket.socket:
        """Opens a service on a device and returns the connected socket, which the caller closes.

        `command` names the service in errors. Raises DeviceLost if server or device are not
        there, DeviceRefused if our key is not accepted, DeviceTimeout at the deadline.
        """
        if command is None:
            command = service if isinstance(service, str) else service.decode("utf-8", "replace")
        with (
            device_faults(serial, command),
            BoundedConnection(self.host, self.port, deadline) as connection,
        ):
            # `host:transport:` is understood by every server; `host:tport:` saves nothing.
            connection.send_command(f"host:transport:{serial}")
            connection.check_okay()
            connection.send_command(service)
            connection.check_okay()
            opened: socket.socket = connection.detach()
            return opened

    def connect(self, address: str, *, deadline: Deadline) -> None:
        """Connects a device by TCP address and returns once its state is `device`.

        A device that does not listen yet is tried again until the deadline; one that refuses our
        key fails at once. `adb connect` itself reports success for some failures
        (`already connected` to an offline device), so only the state counts. Raises InfraError
        saying why.
        """
        why = "no answer"
        while not deadline.expired:
            with contextlib.suppress(TimeoutError, AdbTimeout):
                why = self._try_connect(address, deadline)
            state = self._settled_state(address, deadline)
            if state == "device":
                return
            if state == "unauthorized" or "failed to authenticate" in why:
                self.disconnect(address)
                raise InfraError(f"{address} is unauthorized: {_HINTS['unauthorized']}")
            if any(word in why for word in _HOPELESS):
                raise InfraError(f"{address} cannot be connected: {why}")
            if state is not None:
                # `connect` does nothing for a device it already knows
                self.disconnect(address)
                why = f"it is {state}: {_HINTS.get(state, why)}"
            time.sleep(min(_RETRY_S, deadline.remaining()))
        self.disconnect(address)
        raise InfraError(f"{address} did not become ready in {deadline.seconds:g} s: {why}")

    def _try_connect(self, address: str, deadline: Deadline) -> str:
        with self._faults(f"{self}, connecting {address}", but=(TimeoutError, AdbTimeout)):
            try:
                return self._query(f"host:connect:{address}", deadline).strip()
            except AdbFailError as fail:
                return str(fail)

    def _settled_state(self, address: str, deadline: Deadline) -> str | None:
        """The device's state once it is no longer on its way to another one."""
        while True:
            # the list itself is quick: it gets a moment even where the deadline has just passed
            state = self.state(address, deadline=Deadline(max(0.5, deadline.remaining())))
            if state not in ("connecting", "authorizing") or deadline.expired:
                return state
            time.sleep(min(0.02, deadline.remaining()))

    def reconnect(self, serial: str, *, deadline: Deadline) -> None:
        """Has the server open its connection to a device anew (`adb reconnect`), and waits for it.

        Raises InfraError if the device is not back at the deadline.
        """
        with self._faults(f"{self}, reconnecting {serial}"):
            self._query(f"host-serial:{serial}:reconnect", deadline)
        state = None
        while not deadline.expired:
            state = self.state(serial, deadline=deadline)
            if state == "device":
                return
            time.sleep(min(_RETRY_S, deadline.remaining()))
        there = f"it is {state}" if state else "it is not there"
        raise InfraError(f"{serial} did not come back in {deadline.seconds:g} s: {there}")

    def disconnect(self, address: str) -> None:
        """Drops a device connected by TCP; nothing happens if it is not there.

        Raises InfraError only if the server itself does not answer.
        """
        with self._faults(f"{self}, disconnecting {address}"):
            try:
                self._query(f"host:disconnect:{address}", Deadline(_REQUEST_S))
            except AdbFailError:
                return


class PrivateAdbServer:
    """An adb server of our own for devices connected by TCP; the user's is not touched.

    It runs adb of the adbutils wheel with `key_folder` as its HOME, shows the harness's key, looks
    for no USB devices, emulators or mDNS services, and listens on a loopback port that is bound
    before it starts. It ends with `stop`, and within 2 s when our process ends in any way.
    """

    def __init__(self, *, key_folder: Path, adb: Path | None = None) -> None:
        self._home = key_folder
        self._adb = adb
        self._process: GuardedProcess | None = None
        self._server: AdbServer | None = None

    @property
    def server(self) -> AdbServer:
        """The running server. Raises InfraError if it was not started."""
        if self._server is None:
            raise InfraError("the harness's adb server is not running")
        return self._server

    @property
    def running(self) -> bool:
        """Whether the adb process is still there."""
        return self._process is not None and self._process.running

    @property
    def exit_code(self) -> int | None:
        """How it ended by itself (128 + signal number after a signal), None while it runs."""
        return None if self._process is None else self._process.exit_code

    @property
    def pid(self) -> int | None:
        """The pid of the adb process itself, None if it does not run."""
        return None if self._process is None else self._process.command_pid()

    def start(self) -> None:
        """Starts it and returns when it answers. Raises InfraError with what adb said."""
        if self._process is not None:
            return
        harness_key(self._home)
        with (
            socket.socket() as listening,
            # unnamed: read back for an error message, gone with us
            tempfile.TemporaryFile(dir=self._home) as log,
        ):
            listening.bind(("127.0.0.1", 0))
            listening.listen(64)
            descriptor = listening.fileno()
            self._process = spawn_guarded(
                [self._adb or adb_binary(), "-L", f"acceptfd:{descriptor}", "nodaemon", "server"],
                env=_private_environment(self._home),
                cwd=self._home,
                stderr=log,
                pass_fds=[descriptor],
            )
            server = AdbServer("127.0.0.1", listening.getsockname()[1])
            # ours must be closed, or a request to a server that has ended would wait for ever
            listening.close()
            try:
                server.version(deadline=Deadline(_START_S))
            except BaseException as error:
                self.stop()
                if not isinstance(error, InfraError):
                    raise
                log.seek(0)
                said = log.read(4000).decode("utf-8", "replace").strip()
                raise InfraError(f"the harness's adb server does not start: {said or error}") from (
                    error
                )
        self._server = server

    def stop(self) -> None:
        """Ends it; safe to call twice."""
        self._server = None
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _private_environment(home: Path) -> dict[str, str]:
    """The whole environment of our server: no key, port or USB device of the user's."""
    return {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": os.defpath,
        "LANG": "C",
        "ADB_VENDOR_KEYS": str(home / ".android" / "adbkey"),
        "ADB_MDNS": "0",
        "ADB_MDNS_OPENSCREEN": "0",
        "ADB_MDNS_AUTO_CONNECT": "0",
        "ADB_USB": "0",
        "ADB_EMU": "0",
        "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553",  # below the first port adb would scan
    }


def is_loopback(host: str) -> bool:
    """Whether an address is one of this computer's own, as far as it says so itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
