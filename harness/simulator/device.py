"""Simulated devices, whose daemons end with this process at the latest."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Final, Self

import harness
from harness.core.bounded_json import parse_json
from harness.core.errors import ConfigError, InfraError
from harness.simulator.board import Board

_START_S: Final = 25.0
_STOP_S: Final = 8.0
_MAX_LINE_BYTES: Final = 4096
_MAX_MESSAGE_BYTES: Final = 4000


@dataclass(kw_only=True)
class DeviceSettings:
    """The settings of a device, passed to its daemon and kept over all boots.

    `storage` is its storage folder, kept over restarts; only one device at a time can use it.
    `public_key` is the only accepted adbkey.pub. `storage_limit_bytes` makes files that are
    pushed hit a full flash; `reboot_s` is the duration of a reboot in seconds. `board` makes it one
    with arm64 programs. `prepares_gpu` lets the GPU backend prepare graphs, which it
    cannot execute.
    """

    storage: Path
    properties: Mapping[str, str]
    public_key: Path
    storage_limit_bytes: int | None = None
    reboot_s: float = 0.5
    board: Board | None = None
    prepares_gpu: bool = False

    def to_json(self) -> str:
        plain = {setting.name: getattr(self, setting.name) for setting in fields(DeviceSettings)}
        plain |= {"properties": dict(self.properties), "board": self.board and asdict(self.board)}
        return json.dumps(plain, default=str)

    @classmethod
    def from_json(cls, text: str) -> DeviceSettings:
        plain = parse_json(text)
        for name in ("storage", "public_key"):
            plain[name] = Path(plain[name])
        board = plain["board"]
        plain["board"] = board and Board.from_plain(board)
        return cls(**plain)


@dataclass(eq=False)
class SimulatedDevice(DeviceSettings):
    """A simulated device with its own adb daemon, for `adb connect`; a context manager.

    The daemon ends by itself when this process ends, however that happens.
    """

    name: str

    def __post_init__(self) -> None:
        self.storage, self.public_key = self.storage.resolve(), self.public_key.resolve()
        self._process: subprocess.Popen[bytes] | None = None
        self._port: int | None = None
        self._errors: IO[bytes] | None = None

    @property
    def address(self) -> str:
        """The address it listens on, `127.0.0.1:PORT`, which is its adb serial, too.

        Raises InfraError while it is not started.
        """
        if self._port is None:
            raise InfraError(f"simulated device {self.name} has not been started")
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and return once it listens.

        Raises ConfigError for settings it does not accept, InfraError if the storage is in use, it
        does not come up in 25 s, or it is started already.
        """
        if self._process is not None:
            raise InfraError(f"simulated device {self.name} has already been started")
        deadline = time.monotonic() + _START_S
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - kept for messages()
        self._process = self._spawn(self._errors)
        try:
            self._port = self._read_port(deadline)
        except BaseException:
            exit_code, messages = self._process.poll(), self.messages()
            self.stop()
            if exit_code is None:
                raise
            kind = ConfigError if exit_code == ConfigError.exit_code else InfraError
            raise kind(f"simulated device {self.name}: {messages}") from None

    def messages(self) -> str:
        """Return the end of its daemon's stderr until it was stopped, for diagnosis."""
        if self._errors is None:
            return ""
        fd = self._errors.fileno()
        start = max(0, os.fstat(fd).st_size - _MAX_MESSAGE_BYTES)
        text = os.pread(fd, _MAX_MESSAGE_BYTES, start).decode("utf-8", "replace")
        return text.strip().removeprefix("error: ")

    def stop(self) -> None:
        """End it with all its commands; safe to call twice."""
        process, self._process, self._port = self._process, None, None
        errors, self._errors = self._errors, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout, errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "harness.simulator.daemon", self.to_json()]

    def _spawn(self, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        root = str(Path(harness.__file__).parents[1])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        try:
            return subprocess.Popen(
                self.command(),
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C in a terminal is for the harness, which then stops its devices
                start_new_session=True,
            )
        except OSError as error:
            raise InfraError(f"simulated device {self.name}: {error}") from error

    def _read_port(self, deadline: float) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        fd, line = self._process.stdout.fileno(), b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise InfraError(f"simulated device {self.name} did not start in time")
            data = os.read(fd, _MAX_LINE_BYTES)
            line += data
            if not data or len(line) > _MAX_LINE_BYTES:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(max(0.0, deadline - time.monotonic()))
                raise InfraError(f"simulated device {self.name} ended while starting")
        port = parse_json(line)["port"]
        assert isinstance(port, int)
        return port
