"""Carries what one process with three pipes and one socket say to each other, as packets."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from harness.device.transport.shell_protocol import (
    CLOSE_STDIN,
    EXIT,
    STDERR,
    STDIN,
    STDOUT,
    PacketReader,
    ToldStreams,
    header,
)
from harness.ground.host.platform import has_ended

_READ_BYTES: Final = 64 << 10
_QUEUED_BYTES: Final = 256 << 10
_POLL_MS: Final = 10


class Bridge:
    """Begins a process of ours, and a thread between it and a `socket` that speaks shell_v2.

    The exit packet tells the process's own status; with `told`, the status that its streams tell.
    Without a status the socket is closed after the last output, as if the connection broke. When
    the socket is closed the process is ended, with its group; `leaves_nothing`: its group is ended
    in any case. Raises OSError or ValueError if the process cannot be begun.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        told: ToldStreams | None = None,
        leaves_nothing: bool = False,
    ) -> None:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._told, self._leaves_nothing = process, told, leaves_nothing
        self._stdin, self._stdin_ends = process.stdin, False
        self._kinds = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}
        self._packets = PacketReader((STDIN, CLOSE_STDIN))
        self._left = memoryview(b"")
        self._ours, self.socket = socket.socketpair()
        for fd in (self._stdin.fileno(), *self._kinds):
            os.set_blocking(fd, False)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with self._ours, self._process, contextlib.suppress(OSError):
            heard_out = False
            try:
                heard_out = self._carry()
            finally:
                if self._leaves_nothing or not heard_out:
                    # it is not reaped yet, so that the number is still its group's
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self._process.pid, signal.SIGKILL)
            status = self._status() if heard_out else None
            if status is not None:
                self._send(EXIT, bytes([status & 0xFF]))

    def _carry(self) -> bool:
        """Carries until the process has closed its outputs, and has ended if it is to tell how.

        False if the socket was closed before.
        """
        ours = self._ours.fileno()
        while self._kinds or (self._told is None and not has_ended(self._process)):
            poll = select.poll()
            for fd in self._kinds:
                poll.register(fd, select.POLLIN)
            # without room for more only its end is waited for
            poll.register(ours, select.POLLIN if len(self._left) < _QUEUED_BYTES else 0)
            if self._left and not self._stdin.closed:
                poll.register(self._stdin, select.POLLOUT)
            ready = dict(poll.poll(None if self._kinds else _POLL_MS))
            if ready.get(ours, 0) & select.POLLIN:
                if not self._take():
                    return False
            elif ours in ready:
                return False
            for fd in [fd for fd in self._kinds if fd in ready]:
                if not self._give(fd):
                    del self._kinds[fd]
            self._feed()
        return True

    def _status(self) -> int | None:
        if self._told is not None:
            return self._told.status
        ended = self._process.wait()
        return ended if ended >= 0 else 128 - ended

    def _take(self) -> bool:
        received = self._ours.recv(_READ_BYTES)
        data = b""
        for kind, part in self._packets.feed(received):
            data += part
            self._stdin_ends |= kind == CLOSE_STDIN
        self._left = memoryview(bytes(self._left) + data)
        return bool(received)

    def _feed(self) -> None:
        try:
            while self._left and not self._stdin.closed:
                written = os.write(self._stdin.fileno(), self._left)
                self._left = self._left[written:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._left = memoryview(b"")
            self._stdin_ends = True
        if self._stdin_ends and not self._left and not self._stdin.closed:
            self._stdin.close()

    def _give(self, fd: int) -> bool:
        data, kind = os.read(fd, _READ_BYTES), self._kinds[fd]
        said = data
        if self._told is not None:
            said = self._told.feed(kind, data) if data else self._told.rest(kind)
        self._send(kind, said)
        return bool(data)

    def _send(self, kind: int, data: bytes) -> None:
        if data:
            self._ours.sendall(header(kind, len(data)) + data)
