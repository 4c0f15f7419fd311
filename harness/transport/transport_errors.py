"""Map broken connections to the harness's errors; remember servers that cannot be reached.

Connecting to a computer that is gone wastes time. So one process tries it every few seconds, and
the others get its answer at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from harness.core.errors import DeviceLost, DeviceRefused, DeviceTimeout, InfraError
from harness.core.socket_folder import host_file

NO_SERVER: Final = "no adb server at "
"""The beginning of each NoServerError's message; the address follows."""
_SERVER: Final = re.compile(
    rf"\b(?:{NO_SERVER}(?P<gone>\S+)"
    r"|adb server at (?P<silent>\S+?)(?:: | is out of reach| does not answer))"
)


def server_lost(message: str) -> str | None:
    """Return the address of the adb server that a message says is gone or silent; None of one that
    only names the server of a device that is lost."""
    match = _SERVER.search(message)
    return (match["gone"] or match["silent"]).rstrip(":;,.") if match else None


class AdbFailError(Exception):
    """The adb server answered FAIL; the argument is its text."""


class NoServerError(ConnectionError):
    """Nothing listens at the adb server's address, which the argument names."""


class OutOfReachError(NoServerError):
    """Another computer cannot be reached; the argument says why, and what to do about it."""


class ProtocolError(ValueError):
    """The other side sent bytes that the protocol does not allow."""


BROKEN = (OSError, EOFError, struct.error, AssertionError, AdbFailError, ValueError, OverflowError)
"""Errors of sockets and parsers when the other side closes or sends what is invalid."""


def reason(error: BaseException) -> str:
    """A short text for `error`, never empty."""
    text = str(error) or type(error).__name__
    return "no answer in time" if text == "timed out" else text


@contextmanager
def device_faults(
    serial: str, command: str | None, received: Callable[[], bytes] = bytes
) -> Iterator[None]:
    """Map every failure inside to DeviceLost, DeviceTimeout or DeviceRefused.

    `received` returns the output so far. An InfraError passes unchanged: its origin knew more.
    """
    try:
        yield
    except InfraError:
        raise
    except AdbFailError as error:
        # the texts are those of adb 29 and 36: `device 'X' not found`, `device offline`, `device
        # unauthorized. ...`, `device still authorizing`, `closed` (the device shut the service)
        if "unauthorized" in str(error):
            why = f"the device does not accept the key of this computer: {error}"
            raise DeviceRefused(why, serial=serial, command=command) from error
        raise DeviceLost(f"adb says: {error}", serial=serial, command=command) from error
    except TimeoutError as error:
        raise DeviceTimeout(
            reason(error), serial=serial, command=command, output=received()
        ) from error
    except BROKEN as error:
        unreachable = isinstance(error, NoServerError)
        raise DeviceLost(
            reason(error) if unreachable else f"the connection ended early: {reason(error)}",
            serial=serial,
            command=command,
            output=received(),
        ) from error


@contextmanager
def server_faults(
    request: str, *, start: str, but: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Map every failure of a request to the adb server to InfraError naming `request`.

    Errors in `but` pass unchanged. `start` says how to start such a server.
    """
    passed: tuple[type[BaseException], ...] = (InfraError, *but)
    try:
        yield
    except passed:
        raise
    except TimeoutError as error:
        raise InfraError(f"{request}: no answer in time: {reason(error)}") from error
    except NoServerError as error:
        # its message names the server already
        if isinstance(error, OutOfReachError):
            raise InfraError(reason(error)) from error
        raise InfraError(f"{reason(error)}; {start}") from error
    except BROKEN as error:
        raise InfraError(f"{request}: {reason(error)}") from error


_PAUSE_S: Final = 3.0
_MAX_BYTES: Final = 4096


class Reach:
    """The state of the connection to one server, as all processes of this account know it."""

    def __init__(self, address: Hashable) -> None:
        self._file = host_file(address, "away")

    def require(self) -> None:
        """Raise OutOfReachError if it was unreachable, and some process tried it a moment ago."""
        with contextlib.suppress(FileNotFoundError):
            if 0 <= time.time() - self._file.stat().st_mtime < _PAUSE_S:
                why = self._file.read_bytes()[:_MAX_BYTES].decode("utf-8", "replace")
                raise OutOfReachError(why)
            os.utime(self._file)  # this process tries it now

    @property
    def is_lost(self) -> bool:
        return self._file.exists()

    def mark_lost(self, why: str) -> None:
        """Record that the server could not be reached."""
        self._file.write_text(why[:2000])

    def mark_reached(self) -> None:
        """Record that the server was reached."""
        self._file.unlink(missing_ok=True)
