"""One device as the rest of the harness sees it: shell, files, properties."""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.adb.deadline import Deadline
from harness.adb.ending import END_GRACE_S, ask_for_processes, end_script
from harness.adb.server import AdbServer
from harness.adb.shell import Completed, call_mark, run_script
from harness.adb.sync import Progress, PushItem, RemoteStat, SyncStream
from harness.errors import DeviceRefused, InfraError

__all__ = ["AdbDevice", "Completed", "PushItem", "RemoteStat", "SyncStream"]

MAX_OUTPUT_BYTES = 8 << 20
_SHORT_S = 15.0
_MAX_ABANDONED = 64

# where a legacy shell's stdin can wait; TMPDIR first, since the daemon chose it
_TEMPORARY_FOLDER = (
    'for d in "$TMPDIR" /data/local/tmp /tmp;do '
    '[ -n "$d" ]&&[ -d "$d" ]&&[ -w "$d" ]&&{ echo "$d";exit 0;};done;exit 1'
)


class AdbDevice:
    """A device by its serial on an adb server.

    Holds no connection: each call opens its own and closes it, and no call takes longer than its
    `timeout_s` (a shell call up to 4 s more, to end what it had started and to read its last
    words). Use one object per thread or share it; calls do not disturb one another. Every method
    raises DeviceLost, DeviceTimeout or DeviceRefused, with serial, command and output so far.
    `features`, if given, is taken for what its daemon can do instead of asking. Callbacks run in
    the calling thread; while one runs, the deadline waits.
    """

    def __init__(
        self, serial: str, server: AdbServer, *, features: frozenset[str] | None = None
    ) -> None:
        self.serial = serial
        self.server = server
        self._features = features
        self._abandoned: deque[str] = deque(maxlen=_MAX_ABANDONED)

    def __repr__(self) -> str:
        return f"AdbDevice({self.serial!r}, {self.server})"

    @property
    def features(self) -> frozenset[str]:
        """What its daemon can do (`shell_v2`, `stat_v2`, ...), asked once of the adb server."""
        return self._known_features(Deadline(_SHORT_S))

    def _known_features(self, deadline: Deadline) -> frozenset[str]:
        if self._features is None:
            self._features = self.server.features(self.serial, deadline=deadline)
        return self._features

    def shell(
        self,
        script: str,
        *,
        stdin: bytes = b"",
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
        processes are still there to be looked at, with a deadline of its own (8 s more); an
        InfraError of it is ignored.

        Past the deadline the error is a ScriptTimeout, which tells what the device said of the
        processes, and the result if they had ended by themselves and only the link was late.

        What could not be ended then, because the link was gone, is ended before the next script.

        Devices without shell_v2 answer stderr in stdout; their stdin travels as a file first.
        """
        deadline = Deadline(timeout_s)
        if self._abandoned:
            self.end_abandoned(timeout_s=deadline.at_most(END_GRACE_S).seconds)
        shell_v2 = "shell_v2" in self._known_features(deadline)
        stdin_file = None
        if stdin and not shell_v2:
            stdin_file = self._leave_stdin(stdin, deadline)
            stdin = b""
        return run_script(
            self.server,
            self.serial,
            script,
            shell_v2=shell_v2,
            stdin=stdin,
            stdin_file=stdin_file,
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

        Whether nothing is left of them, for certain. Only processes that carry a call's mark are
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

        Also those of processes of ours that are gone; so only who alone uses the device may call
        it. Whether nothing is left, for certain. Never raises because of the device.
        """
        return self._end(call_mark(self.serial), Deadline(timeout_s))

    def _end(self, token: str, deadline: Deadline) -> bool:
        with contextlib.suppress(InfraError):
            shell_v2 = "shell_v2" in self._known_features(deadline)
            script, left_s = end_script(token, None), deadline.remaining()
            return ask_for_processes(
                self.server, self.serial, script, shell_v2=shell_v2, timeout_s=left_s
            ).ended
        return False

    def reboot(self, *, timeout_s: float) -> None:
        """Tells the device to reboot; it is still there when this returns, or gone already.

        Raises DeviceError if it refuses.
        """
        deadline = Deadline(timeout_s)
        with self.server.transport(self.serial, "reboot:", deadline) as opened:
            opened.settimeout(deadline.remaining() or 0.01)
            with contextlib.suppress(OSError):
                while opened.recv(4096):
                    pass

    def _leave_stdin(self, stdin: bytes, deadline: Deadline) -> str:
        where = run_script(
            self.server,
            self.serial,
            _TEMPORARY_FOLDER,
            shell_v2=False,
            deadline=deadline,
            max_output_bytes=4096,
            abandoned=self._abandoned.append,
        )
        folder = where.stdout.decode("utf-8", "surrogateescape").strip()
        if not where.ok or not folder.startswith("/"):
            raise DeviceRefused(
                "no folder where a script's input could be left", serial=self.serial
            )
        path = f"{folder}/.qnn-harness-stdin-{secrets.token_hex(8)}"
        with self._sync(deadline) as stream:
            stream.push([PushItem(stdin, path, 0o600)])
        return path

    def sync(self, *, timeout_s: float) -> SyncStream:
        """One stream for several file operations, all under one deadline."""
        return self._sync(Deadline(timeout_s))

    def _sync(self, deadline: Deadline) -> SyncStream:
        return SyncStream(self.server, self.serial, self._known_features(deadline), deadline)

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """Sends files over one stream; see `SyncStream.push`.

        Not atomic: push to a temporary name and rename where that matters.
        """
        with self.sync(timeout_s=timeout_s) as stream:
            stream.push(files, progress)

    def pull(self, remote: str, local: Path, *, timeout_s: float, max_bytes: int) -> None:
        """Fetches one file; see `SyncStream.pull`."""
        with self.sync(timeout_s=timeout_s) as stream:
            stream.pull(remote, local, max_bytes)

    def stat(
        self, remote: str, *, timeout_s: float = _SHORT_S, follow: bool = True
    ) -> RemoteStat | None:
        """A file's attributes, None if it is not there; see `SyncStream.stat`."""
        with self.sync(timeout_s=timeout_s) as stream:
            return stream.stat(remote, follow=follow)
