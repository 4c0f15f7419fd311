"""Runs a command on a terminal: a pty, in front of an emulator that tells what is on the screen."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import pyte

WAIT_S = 120.0


class Terminal:
    """A program on a terminal of its own; `everything` is all that it ever wrote."""

    def __init__(
        self,
        command: Sequence[object],
        *,
        cwd: Path,
        env: Mapping[str, str],
        columns: int = 100,
        rows: int = 30,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.ByteStream(self.screen)
        self.everything = b""
        self.seen: list[str] = []
        self._ours, theirs = pty.openpty()
        self._fit(columns, rows)
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=cwd,
            env={"TERM": "xterm-256color", **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._settings = termios.tcgetattr(self._ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)

    def hang_up(self) -> int:
        """Close the terminal under the program, and return its exit code."""
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), self._ours)
        return self.process.wait(WAIT_S)

    def _fit(self, columns: int, rows: int) -> None:
        termios.tcsetwinsize(self._ours, (rows, columns))

    def resize(self, columns: int, rows: int) -> None:
        """As terminals do, and pyte does not: the cursor stays with its text."""
        screen, row = self.screen, self.screen.cursor.y
        lost = max(0, row - rows + 1)
        screen.cursor.y = screen.lines - 1
        for _ in range(lost):
            screen.index()
        for below in range(rows, screen.lines):
            screen.buffer.pop(below, None)
        screen.lines = min(rows, screen.lines)
        screen.set_margins()
        screen.cursor.y = row - lost
        screen.resize(rows, columns)
        self._fit(columns, rows)

    def send(self, text: str) -> None:
        os.write(self._ours, text.encode())

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without empty ones below."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip().split("\n")

    @property
    def scrolled(self) -> list[str]:
        """The same, behind all that has gone out at the top."""
        top = [
            "".join(line[column].data for column in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        ]
        return [*top, *self.lines]

    @property
    def text(self) -> str:
        return "\n".join(self.scrolled)

    def read(self, seconds: float = 0.05) -> bool:
        """Takes what comes within a while; whether the program still has its terminal."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self.everything += data
        self._stream.feed(data)
        shown = "\n".join(self.lines)
        if not self.seen or self.seen[-1] != shown:
            self.seen.append(shown)
        return True

    def wait_for(self, condition: Callable[[Self], object] | str) -> None:
        """Until the screen shows something. Raises AssertionError if it never does."""
        until = time.monotonic() + WAIT_S
        while not (condition in self.text if isinstance(condition, str) else condition(self)):
            alive = self.read()
            if isinstance(condition, str):
                alive = alive or condition in self.text
            assert alive, self.text
            assert time.monotonic() < until, self.text

    def finish(self) -> int:
        """Until it ends; its exit code. The terminal has the settings that it had."""
        until = time.monotonic() + WAIT_S
        while self.read():
            assert time.monotonic() < until, self.text
        code = self.process.wait(WAIT_S)
        assert termios.tcgetattr(self._ours) == self._settings
        return code
