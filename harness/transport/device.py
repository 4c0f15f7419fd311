"""The interface to one device, by whatever transport: a shell and files."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.transport.channel import Channel
from harness.transport.files import Progress, PushItem, RemoteStat
from harness.transport.shell import (
    END_GRACE_S,
    Completed,
    ShellCall,
    call_mark,
    end_script,
    query_processes,
    run_script,
)

MAX_OUTPUT_BYTES: Final = 8 << 20
SHORT_S: Final = 15.0
_MAX_ABANDONED: Final = 64


class Transport(ABC):
    """The transport to one device.

    No call takes longer than its `timeout_s` (a shell call up to 4 s more, to end its processes and
    to read the rest of its output). Objects may be shared between threads; calls do not disturb one
    another. Every method raises DeviceLost, DeviceTimeout or DeviceRefused, with serial, command
    and output so far. Callbacks run in the calling thread; while one runs, the deadline is not
    checked.
    """

    is_checked: ClassVar[bool] = False
    """Whether the transport guarantees that received bytes are those that were sent."""

    def __init__(self, serial: str) -> None:
        self.serial = serial
        """The device's name in errors and results."""
        self._abandoned: deque[str] = deque(maxlen=_MAX_ABANDONED)

    @abstractmethod
    def open(self, call: ShellCall) -> Channel:
        """As `Link.open`."""

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
    def stat(
        self, remote: str, *, timeout_s: float = SHORT_S, follow: bool = True
    ) -> RemoteStat | None:
        """Return a file's attributes, None if there is no such file."""

    def shell(
        self,
        script: str,
        *,
        stdin: bytes | Iterable[bytes] = b"",
        timeout_s: float,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        before_end: Callable[[Deadline], None] | None = None,
        doing: str = "",
        collect: bool = True,
    ) -> Completed:
        """Run a POSIX shell script; wait for it and for every process that keeps its output open.

        `doing` names the purpose in errors, as in "ask what it is".

        A non-zero exit code is no exception. `on_stdout` and `on_stderr` get the output as it
        arrives; it is collected as well, without `collect` only its end. When `max_output_bytes`
        (both streams together) is exceeded, the script is ended and the result is `truncated`. At
        the deadline, at Ctrl-C and when a callback raises, the script's process group is killed
        with SIGKILL, and so is everything that it started elsewhere. A connection that ends without
        an exit status raises DeviceLost.

        `before_end` is called when the deadline has passed, if the device reports within 2 s that
        processes are still there. It has a deadline of its own (8 s more); an InfraError from it is
        ignored.

        Past the deadline ScriptTimeout is raised, with the processes that the device reported, and
        the result if they had ended by themselves and only the link was late.

        Processes that could not be ended, because the link was gone, are ended before the next
        script.
        """
        deadline = Deadline(timeout_s)
        if self._abandoned:
            self.end_abandoned(timeout_s=deadline.at_most(END_GRACE_S).seconds)
        return run_script(
            self,
            script,
            stdin=stdin,
            deadline=deadline,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            max_output_bytes=max_output_bytes,
            abandoned=self._abandoned.append,
            before_end=before_end,
            doing=doing,
            collect=collect,
        )

    def end_abandoned(self, *, timeout_s: float) -> bool:
        """End the processes that earlier calls of this object left when their link was lost.

        Return whether certainly none is left. Only processes with a call's mark are touched.
        """
        deadline = Deadline(timeout_s)
        for token in tuple(self._abandoned):
            if self._end(token, deadline):
                with contextlib.suppress(ValueError):  # another thread was quicker
                    self._abandoned.remove(token)
        return not self._abandoned

    def end_leftovers(self, *, timeout_s: float) -> bool:
        """End all processes that calls from this computer have left running on this device.

        Only for exclusive users of the device: calls of other processes are ended, too. Return
        whether certainly none is left. Never raises because of the device.
        """
        return self._end(call_mark(self.serial), Deadline(timeout_s))

    def _end(self, token: str, deadline: Deadline) -> bool:
        with contextlib.suppress(InfraError):
            script = end_script(token, None)
            return query_processes(self, script, timeout_s=deadline.remaining()).ended
        return False
