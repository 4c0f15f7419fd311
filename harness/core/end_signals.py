"""Signals that end the program: Ctrl-C, the SIGTERM of a CI system, a closed terminal."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import termios
import threading
import time
from collections.abc import Generator
from types import FrameType
from typing import Final

_GRACE_S: Final = 10.0
_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Interruption by a signal, which pytest shows in one line.

    For a plain KeyboardInterrupt it shows the line of code that was running, as if that was at
    fault.
    """

    __module__ = "builtins"  # a name without a module


class Ending:
    """Ends a program in order: a second signal does not interrupt its cleanup.

    SIGINT, SIGTERM and SIGHUP raise a KeyboardInterrupt; SIGTERM also where SIGINT is ignored, as
    in a background job of a shell. Further signals are ignored for ten seconds, so that the cleanup
    after the first one can finish. It is a pytest plug-in, too.
    """

    def __init__(self, *, interrupt: bool = True) -> None:
        self._interrupt = interrupt
        self._signalled_at: float | None = None
        self._is_uninterrupted = False
        self._replaced: dict[int, object] = {}

    def watch(self) -> None:
        """Handle the signals from now on, except those that have another handler already."""
        if self._replaced or threading.current_thread() is not threading.main_thread():
            return
        usual: dict[signal.Signals, object] = dict.fromkeys(_END_SIGNALS, signal.SIG_DFL)
        if self._interrupt:
            usual[signal.SIGINT] = signal.default_int_handler
        for number, handler in usual.items():
            now = signal.getsignal(number)
            if now is handler or isinstance(getattr(now, "__self__", None), Ending):
                self._replaced[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _forget_closed_terminal()
        now = time.monotonic()
        obeyed = self._signalled_at is not None and now - self._signalled_at < _GRACE_S
        if not self._is_uninterrupted and not obeyed:
            self._signalled_at = now
            raise Interrupted(signal.Signals(number).name)

    @contextlib.contextmanager
    def uninterrupted(self) -> Generator[None]:
        """Ignore signals in this block, which must be short and come last."""
        self._is_uninterrupted = True
        try:
            yield
        finally:
            self._is_uninterrupted = False

    def pytest_unconfigure(self) -> None:
        """Restore the handlers of the signals."""
        for number, handler in self._replaced.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._replaced.clear()


def _forget_closed_terminal() -> None:
    """Redirect descriptors of a terminal that is gone to /dev/null: writing would be an error."""
    for descriptor in map(int, os.listdir("/dev/fd")):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, descriptor, inheritable=descriptor < 3)
                os.close(nowhere)
