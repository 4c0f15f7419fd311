"""An adb server that many tests share: one that ended is named, and the next test gets a new one.

adb 29 can crash by itself when connections break: a use after free in its
`local_socket_event_func`, seen as SIGSEGV at one and the same instruction. That is no fault of the
harness, which reports the device as lost; but the tests behind it need a server.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from harness.core.deadline import Deadline
from harness.simulator.private_server import PrivateAdbServer
from harness.transport.adb_server import AdbServer

CRASHES = {128 + number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)}

_END_S = 15.0


class SteadyServer:
    """A PrivateAdbServer, started when it is first needed and again whenever it has ended."""

    def __init__(self, home: Path, adb: Path | None = None) -> None:
        self._home = home
        self.adb = adb
        self._private: PrivateAdbServer | None = None
        self.ends: list[int] = []

    @property
    def server(self) -> AdbServer:
        """The running server; another one, on another port, if the last one has ended."""
        self.look()
        if self._private is None:
            private = PrivateAdbServer(key_folder=self._home, adb=self.adb)
            private.start()
            self._private = private
        return self._private.server

    @property
    def pid(self) -> int | None:
        """The pid of the adb process, None if there is none."""
        return None if self._private is None else self._private.pid

    def look(self) -> None:
        """Notes in `ends` how the server ended, if it has."""
        private = self._private
        if private is None or private.server.is_running():
            return
        deadline = Deadline(_END_S)  # a crash takes as long as its core takes to be written
        while private.exit_code is None and not deadline.expired:
            time.sleep(0.02)
        code = private.exit_code
        self.stop()
        self.ends.append(128 + signal.SIGKILL if code is None else code)

    def stop(self) -> None:
        private, self._private = self._private, None
        if private is not None:
            private.stop()


def end_in_words(code: int) -> str:
    """Describe the end of a server with that exit code."""
    if code > 128:
        return f"ended by {signal.Signals(code - 128).name}"
    return f"ended with exit code {code}"
