"""A running adb server: list its devices, connect devices to it, restart it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, InfraError
from harness.transport.adb_address import USER_SERVER, ServerAddress
from harness.transport.adb_client import Client, adbutils
from harness.transport.transport_errors import AdbFailError, server_faults

_REQUEST_S = 5.0
_RETRY_S = 0.1
_HOPELESS = ("failed to resolve", "empty address", "bad port", "invalid port", "missing port")
STATE_ADVICE: Final[Mapping[str, str]] = {
    "unauthorized": "unlock it and accept this computer's key; if it does not ask, revoke the keys "
    "in its developer options and plug it in again",
    "authorizing": "unlock it and accept this computer's key",
    "offline": "reconnect its cable or network, or run `qnn-harness devices recover DEVICE`; if "
    "that does not help, reboot it",
    "no permissions": "the adb server has no permission for its USB node; add the udev rule "
    '`SUBSYSTEM=="usb", ATTR{idVendor}=="ID", MODE="0660", GROUP="plugdev", TAG+="uaccess"` (ID as '
    "`lsusb` has it) to /etc/udev/rules.d/51-android.rules, then `adb kill-server` and `adb "
    "start-server`",
    "recovery": "boot it into the system: `adb reboot`",
    "sideload": "boot it into the system: `adb reboot`",
    "bootloader": "boot it into the system: `fastboot reboot`",
}
"""Advice for a device in one of adb's states other than `device`."""


@dataclass(frozen=True)
class SeenDevice:
    """One line of a server's device list: adb's word for the state; the model, or ""."""

    serial: str
    state: str
    model: str = ""


@dataclass(frozen=True)
class AdbServer:
    """An adb server by its address: ours, the user's (the default) or one on another host."""

    address: ServerAddress = USER_SERVER

    def __str__(self) -> str:
        return f"adb server at {self.address}"

    @contextlib.contextmanager
    def _client(
        self, deadline: Deadline, doing: str = "", *, but: tuple[type[BaseException], ...] = ()
    ) -> Iterator[Client]:
        """adbutils' client for one action; its errors become InfraError, except for `but`."""
        with server_faults(f"{self}{doing}", but=but, start=self.address.start_advice):
            yield self.client(deadline)

    def client(self, deadline: Deadline) -> Client:
        """adbutils' client of this server for one action, which raises what `Connection` does."""
        return Client(self.address, deadline)

    def is_running(self, *, timeout_s: float = _REQUEST_S) -> bool:
        """Return whether an adb server answers at the address."""
        with contextlib.suppress(InfraError):
            return self.version(deadline=Deadline(timeout_s)) > 0
        return False

    def version(self, *, deadline: Deadline) -> int:
        """The server's protocol version (41 for adb 29 to 36). Raises InfraError."""
        with self._client(deadline) as client:
            return int(client.server_version())

    def devices(self, *, timeout_s: float = _REQUEST_S) -> list[SeenDevice]:
        """Return every device the server knows, whatever its state. Raises InfraError."""
        with self._client(Deadline(timeout_s)) as client:
            infos = client.list(extended=True)
        # the one state of two words, of which adbutils takes the first
        words = {"no": "no permissions"}
        return [
            SeenDevice(info.serial, words.get(info.state, info.state), info.tags.get("model", ""))
            for info in infos
        ]

    def state(self, serial: str, *, timeout_s: float) -> str | None:
        """Return a device's state, None if the server does not know it. Raises InfraError."""
        devices = self.devices(timeout_s=timeout_s)
        return next((device.state for device in devices if device.serial == serial), None)

    def connect(self, address: str, *, deadline: Deadline) -> None:
        """Connect a device by TCP address and return once its state is `device`.

        A device that does not listen yet is tried again until the deadline; one that refuses our
        key fails at once. `adb connect` reports success also for an offline device, so only the
        state counts. Raises InfraError saying why.
        """
        why = "no answer"
        while not deadline.expired:
            doing = f", connecting {address}"
            with (
                contextlib.suppress(TimeoutError),
                self._client(deadline, doing, but=(TimeoutError,)) as client,
            ):
                try:
                    why = str(client.connect(address)).strip()
                except AdbFailError as fail:
                    why = str(fail)
            state = self._settled_state(address, deadline)
            if state == "device":
                return
            if state == "unauthorized" or "failed to authenticate" in why:
                self.disconnect(address)
                raise InfraError(f"{address} is unauthorized: {STATE_ADVICE['unauthorized']}")
            if any(word in why for word in _HOPELESS):
                raise InfraError(f"cannot connect to {address}: {why}")
            if state is not None:
                # `connect` does nothing for a device it already knows
                self.disconnect(address)
                why = f"it is {state}: {STATE_ADVICE.get(state, why)}"
            time.sleep(min(_RETRY_S, deadline.remaining()))
        self.disconnect(address)
        raise InfraError(f"{address} did not become ready in {deadline.seconds:.3g} s: {why}")

    def _settled_state(self, address: str, deadline: Deadline) -> str | None:
        """Return the device's state once it is neither `connecting` nor `authorizing`."""
        while True:
            # the list itself is quick: it gets a moment even where the deadline has just passed
            state = self.state(address, timeout_s=max(0.5, deadline.remaining()))
            if state not in ("connecting", "authorizing") or deadline.expired:
                return state
            time.sleep(min(0.02, deadline.remaining()))

    def reconnect(self, serial: str, *, deadline: Deadline) -> None:
        """Reopen the connection to a device and wait for it. Raises InfraError."""
        with self._client(deadline, f", reconnecting {serial}") as client:
            client.query(f"host-serial:{serial}:reconnect")
            client.wait_for(serial)

    def disconnect(self, address: str) -> None:
        """Drop a device connected by TCP, if it is there. Raises InfraError if nobody answers."""
        with self._client(Deadline(_REQUEST_S), f", disconnecting {address}") as client:
            client.disconnect(address)


def adb_binary() -> Path:
    """The adb program used to start servers: the adbutils wheel's own 36, never one on PATH.

    ADBUTILS_ADB_PATH names another one on purpose. Raises ConfigError if there is none.
    """
    named = os.environ.get("ADBUTILS_ADB_PATH")
    path = Path(named or Path(adbutils.__file__).parent / "binaries/adb")
    if not os.access(path, os.X_OK):
        raise ConfigError(f"no adb program at {path}", field="ADBUTILS_ADB_PATH" if named else None)
    return path
