"""Being told to end: by Ctrl-C, the SIGTERM of a CI system, or a terminal that is closed."""

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

_OBEYED_WITHIN_S: Final = 10.0
_TOLD_TO_END: Final = (signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Ended by a signal, which pytest shows in one line.

    Of a plain KeyboardInterrupt it shows the line of code that happened to be at work, as if that
    was at fault.
    """

    __module__ = "builtins"  # a name without a module


class Ending:
    """Ends a program in order, and once: a second signal does not cut its end short.

    SIGINT, SIGTERM and SIGHUP raise a KeyboardInterrupt; SIGTERM also where SIGINT is ignored, as
    in a background job of a shell. More of them are passed over while the first one is obeyed: only
    who asks again after ten seconds cuts that short. It is a plug-in of pytest, too.
    """

    def __init__(self, *, interrupt: bool = True) -> None:
        self._interrupt = interrupt
        self._asked_at: float | None = None
        self._held = False
        self._replaced: dict[int, object] = {}

    def watch(self) -> None:
        """Watches for signals from now on, but for those that somebody else handles."""
        if self._replaced or threading.current_thread() is not threading.main_thread():
            return
        usual: dict[signal.Signals, object] = dict.fromkeys(_TOLD_TO_END, signal.SIG_DFL)
        if self._interrupt:
            usual[signal.SIGINT] = signal.default_int_handler
        for number, handler in usual.items():
            now = signal.getsignal(number)
            if now is handler or isinstance(getattr(now, "__self__", None), Ending):
                self._replaced[number] = signal.signal(number, self._asked)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _forget_closed_terminal()
        now = time.monotonic()
        obeyed = self._asked_at is not None and now - self._asked_at < _OBEYED_WITHIN_S
        if not self._held and not obeyed:
            self._asked_at = now
            raise Interrupted(signal.Signals(number).name)

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Nothing interrupts what is done in this block, which must be short and come last."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def pytest_unconfigure(self) -> None:
        """Signals are again what they were."""
        for number, handler in self._replaced.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._replaced.clear()


def _forget_closed_terminal() -> None:
    """Have what is written to a terminal that is gone go nowhere: it would be an error."""
    for descriptor in map(int, os.listdir("/dev/fd")):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, descriptor, inheritable=descriptor < 3)
                os.close(nowhere)
