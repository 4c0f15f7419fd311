"""A lock on a device itself, for computers that share it.

A shell on the device holds the lock for as long as this computer talks to it, so that it is freed
in whatever way the holder, its link or the adb server between them ends.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import DeviceError
from harness.transport.deadline_socket import Channel
from harness.transport.device_queries import PREFIX, shell_text, split_sections
from harness.transport.shell import RemoteShell, ShellCall
from harness.transport.shell_protocol import CLOSE_STDIN_PACKET, STDIN, PacketReader, header
from harness.transport.transport_errors import BROKEN, device_faults

_ANSWER_S: Final = 5.0
_LOOK_S: Final = 0.02
_IN_LINE_S: Final = 10
_RELEASE_S: Final = 1.0
_DOING: Final = "lock the device"
_MAX_BYTES: Final = 64 << 10
_BEAT: Final = header(STDIN, 1) + b"\n"


class DeviceLock:
    """The lock of one device; `folder` is the work folder of those who share it.

    After `try_acquire`, `last_holder` is the line of its holder, or of the one before us. `lacks`
    names the program that the device needs for it; without that nobody is kept off.
    """

    def __init__(self, device: RemoteShell, folder: str) -> None:
        self._device, self._folder = device, folder
        self._channel: Channel | None = None
        self._reader, self._answer = PacketReader(), bytearray()
        self._changing = threading.Lock()
        self._is_waiting = False
        self.last_holder = b""
        self.lacks = ""

    def try_acquire(self, line: bytes, *, wait: bool) -> bool:
        """Acquire it, with `line` for others to read; return False if it is held.

        With `wait` the device keeps us in line for 10 s, and each further call looks whether it
        was our turn; `release` leaves the line. Raises DeviceError if the device does not answer.
        """
        with self._changing, contextlib.ExitStack() as undo:
            if self.lacks or (self._channel is not None and not self._is_waiting):
                return True
            undo.callback(self._close)
            with device_faults(self._device.serial, _DOING):
                if self._channel is None:
                    self._open(line, _IN_LINE_S if wait else 0)
                    self._is_waiting = wait
                answered = self._read(Deadline(_LOOK_S if self._is_waiting else _ANSWER_S))
            if not answered:
                undo.pop_all()
                return False
            self._is_waiting = False
            if not self._is_acquired() or not (self.lacks or self._is_open()):
                return False
            undo.pop_all()
            return True

    def is_held(self) -> bool:
        """Return whether the device still holds it for us, as far as its answers have arrived."""
        with self._changing:
            if self._channel is None or self._is_waiting:
                return bool(self.lacks)
            if self._is_open():
                return True
            self._close()
            return False

    def beat(self) -> None:
        """Tell the device that its holder is alive; at least every 20 s."""
        if self._changing.acquire(blocking=False):
            try:
                if self._channel is not None and not self._is_waiting:
                    self._channel.queue(_BEAT)
                    self._channel.flush_some()
            finally:
                self._changing.release()

    def release(self) -> None:
        """Free it, or leave the line; safe to call twice."""
        with self._changing:
            if self._channel is not None and not self._is_waiting:
                # else who comes next would still find it held for a moment
                with contextlib.suppress(DeviceError), device_faults(self._device.serial, _DOING):
                    self._channel.renew(Deadline(_RELEASE_S))
                    self._channel.queue(CLOSE_STDIN_PACKET)
                    while True:
                        self._channel.receive()
            self._close()

    def _open(self, line: bytes, wait_s: int) -> None:
        words = (self._folder, str(wait_s), line.decode("utf-8", "replace").strip())
        script = f"set -- {shlex.join(words)}\n{shell_text('transport', 'device_lock')}"
        self._channel = self._device.open(ShellCall(script, Deadline(_ANSWER_S), _DOING))
        self._reader, self._answer = PacketReader(), bytearray()

    def _read(self, deadline: Deadline) -> bool:
        """Read the answer; return False if the device keeps us in line at the deadline."""
        assert self._channel is not None
        self._channel.renew(deadline)
        try:
            while f"{PREFIX}end\n".encode() not in self._answer:
                for _, data in self._reader.feed(self._channel.receive()):
                    self._answer += data[: _MAX_BYTES - len(self._answer)]
        except TimeoutError:
            if not self._is_waiting:
                raise
            return False
        return True

    def _is_acquired(self) -> bool:
        sections = split_sections(bytes(self._answer), "")
        for answer in ("acquired", "held"):
            if answer in sections:
                self.last_holder = sections[answer].content
                return answer == "acquired"
        lacks = next((name for name in sections if name.startswith("lacks ")), None)
        if lacks is None:
            problem = f"the shell of the device cannot lock a file in {self._folder}"
            raise DeviceError(problem, serial=self._device.serial, command=_DOING)
        self.lacks = lacks.removeprefix("lacks ")
        return True

    def _is_open(self) -> bool:
        """Return whether the shell runs: nothing comes from it before its end."""
        assert self._channel is not None
        self._channel.renew(Deadline(_ANSWER_S))
        with contextlib.suppress(*BROKEN):
            return not self._channel.receive(room_below=1)
        return False

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._is_waiting = None, False
