"""The interface to one device, by whatever transport: a shell and files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from harness.transport.files import Progress, PushItem, RemoteStat
from harness.transport.shell import RemoteShell

SHORT_S: Final = 15.0


class Transport(RemoteShell):
    """The transport to one device.

    No call takes longer than its `timeout_s` (a shell call up to 4 s more, to end its processes and
    to read the rest of its output). Objects may be shared between threads; calls do not disturb one
    another. Every method raises DeviceLost, DeviceTimeout or DeviceRefused, with serial, command
    and output so far. Callbacks run in the calling thread; while one runs, the deadline is not
    checked.
    """

    is_checked: ClassVar[bool] = False
    """True if the transport guarantees that received bytes are those that were sent."""

    @abstractmethod
    def connect(self, *, timeout_s: float) -> None:
        """Make the device ready for use. Raises InfraError with the reason if that fails."""

    @abstractmethod
    def reconnect(self, *, timeout_s: float) -> None:
        """Reopen the device's connection, whatever state that is in.

        Raises InfraError if the new connection does not become ready.
        """

    @abstractmethod
    def reboot(self, *, timeout_s: float) -> None:
        """Tell the device to reboot; this may return before it begins to.

        Raises DeviceError if it refuses.
        """

    @abstractmethod
    def is_there(self, *, timeout_s: float) -> bool:
        """Return whether the device can be reached now. Raises InfraError if that is unknown."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection that calls share, if there is one; the next call reopens it.

        Raises InfraError only if the program that keeps the connection does not answer.
        """

    @abstractmethod
    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """Send files one after the other; the device creates their parent folders.

        Not atomic: push to a temporary name and rename where that matters. When a file is refused,
        those after it may have arrived or not. `progress` gets the number of bytes sent since the
        call began. Raises InfraError if a local file cannot be read.
        """

    @abstractmethod
    def pull(self, remote: str, local: Path, *, timeout_s: float, max_bytes: int) -> None:
        """Fetch one file with its modification time and permission bits.

        It is written to a temporary file beside `local`, which appears only when it is complete.
        Raises DeviceError for more than `max_bytes`.
        """

    @abstractmethod
    def stat(self, remote: str, *, timeout_s: float = SHORT_S) -> RemoteStat | None:
        """Return a file's attributes, None if there is no such file."""
