"""One device as the rest of the harness sees it, whatever leads to it: a shell, and files."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from harness.core.deadline import Deadline
from harness.core.errors import DeviceError, DeviceRefused, InfraError
from harness.transport.channel import Channel
from harness.transport.files import Progress, PushItem, RemoteStat, take_file
from harness.transport.shell import (
    END_GRACE_S,
    Completed,
    ShellCall,
    ask_for_processes,
    call_mark,
    end_script,
    run_script,
)

MAX_OUTPUT_BYTES: Final = 8 << 20
SHORT_S: Final = 15.0
_MAX_ABANDONED: Final = 64


class Transport(ABC):
    """The way to one device.

    No call takes longer than its `timeout_s` (a shell call up to 4 s more, to end what it had
    started and to read its last words). Use one object per thread or share it; calls do not disturb
    one another. Every method raises DeviceLost, DeviceTimeout or DeviceRefused, with serial,
    command and output so far. Callbacks run in the calling thread; while one runs, the deadline
    waits.
    """

    is_checked: ClassVar[bool] = False
    """Whether what comes is what was sent, for certain, or else nothing comes."""

    def __init__(self, serial: str) -> None:
        self.serial = serial
        """What errors and results call the device."""
        self._abandoned: deque[str] = deque(maxlen=_MAX_ABANDONED)

    @abstractmethod
    def open(self, call: ShellCall) -> Channel:
        """As `Link.open`."""

    @abstractmethod
    def connect(self, *, timeout_s: float) -> None:
        """Makes it ready to be used. Raises InfraError that says why it cannot be."""

    @abstractmethod
    def reconnect(self, *, timeout_s: float) -> None:
        """Begins its connection anew, whatever state that is in.

        Raises InfraError if the new connection does not become ready.
        """

    @abstractmethod
    def reboot(self, *, timeout_s: float) -> None:
        """Tells the device to reboot, which it may not have begun when this returns.

        Raises DeviceError if it refuses.
        """

    @abstractmethod
    def is_there(self, *, timeout_s: float) -> bool:
        """Whether it can be asked now. Raises InfraError if that cannot be told."""

    @abstractmethod
    def disconnect(self) -> None:
        """Gives up the connection that calls share, if there is one; the next call begins it anew.

        Raises InfraError only if what keeps the connection does not answer.
        """

    @abstractmethod
    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """Sends files one behind the other; the device makes the folders above them.

        Not atomic: push to a temporary name and rename where that matters. When one is refused,
        those behind it may have arrived or not. `progress` gets the number of bytes sent since the
        call began. Raises InfraError where a local file cannot be read.
        """

    @abstractmethod
    def pull(self, remote: str, local: Path, *, timeout_s: float, max_bytes: int) -> None:
        """Fetches one file, keeping its modification time and permission bits.

        It is written beside `local`, which appears only when it is complete. More than
        `max_bytes` is a DeviceError.
        """

    @abstractmethod
    def stat(
        self, remote: str, *, timeout_s: float = SHORT_S, follow: bool = True
    ) -> RemoteStat | None:
        """A file's attributes, None if there is no such file."""

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
        """Runs a POSIX shell script and waits for it, and for whatever holds its output open.

        `doing` is what an error says that it was for, in words, as in "ask what it is".

        A non-zero exit code is no exception. `on_stdout` and `on_stderr` get the output as it
        comes; it is collected all the same, or without `collect` only its end. When
        `max_output_bytes` (both together) are exceeded, the script is ended and the result is
        `truncated`. At the deadline, at Ctrl-C and when a
        callback raises, the script's process group is ended with SIGKILL, and so is everything
        that it started elsewhere. A connection that ends without an exit status is DeviceLost.

        `before_end` is called when the deadline has passed, if the device says within 2 s that
        processes are still there. It has a deadline of its own (8 s more), and an InfraError of it
        is ignored.

        Past the deadline the error is a ScriptTimeout. It tells what the device said of the
        processes, and the result if they had ended by themselves and only the link was late.

        What could not be ended then, because the link was gone, is ended before the next script.
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
        """Ends what earlier calls of this object left running when their link was lost.

        Returns whether nothing is left of them, for certain. Only processes with a call's mark are
        touched.
        """
        deadline = Deadline(timeout_s)
        for token in tuple(self._abandoned):
            if self._end(token, deadline):
                with contextlib.suppress(ValueError):  # another thread was quicker
                    self._abandoned.remove(token)
        return not self._abandoned

    def end_leftovers(self, *, timeout_s: float) -> bool:
        """Ends whatever calls from this computer to this device have left running there.

        Only who uses the device alone may call it: calls of other processes are ended, too. Returns
        whether nothing is left, for certain. Never raises because of the device.
        """
        return self._end(call_mark(self.serial), Deadline(timeout_s))

    def _end(self, token: str, deadline: Deadline) -> bool:
        with contextlib.suppress(InfraError):
            script = end_script(token, None)
            return ask_for_processes(self, script, timeout_s=deadline.remaining()).ended
        return False


class PacketTransport(Transport):
    """A way that opens its shells itself: they speak in packets, and each byte is vouched for."""

    is_checked = True

    def pull(self, remote: str, local: Path, *, timeout_s: float, max_bytes: int) -> None:
        """As `Transport.pull`."""
        deadline = Deadline(timeout_s)
        found = self.stat(remote, timeout_s=timeout_s)
        fetch = partial(self._fetch, remote, deadline=deadline, command=f"pull {remote}")
        take_file(remote, local, max_bytes, found, fetch, serial=self.serial)

    @abstractmethod
    def _fetch(
        self, remote: str, take: Callable[[bytes], None], deadline: Deadline, command: str
    ) -> None:
        """Hands on what is in a file, piece by piece; `command` names it in errors."""

    def _error(self, problem: str, command: str) -> DeviceError:
        return DeviceError(problem, serial=self.serial, command=command)

    def _refused(self, problem: str, command: str, said: bytes = b"") -> DeviceRefused:
        words = " ".join(said[-500:].decode("utf-8", "replace").split())
        text = f"{problem}: {words}" if words else problem
        return DeviceRefused(text, serial=self.serial, command=command)
