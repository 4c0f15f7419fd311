"""Shows a run on a terminal while it goes on: one thread that hears, reckons and draws."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TextIO

from harness.ground.files.notices import followed_by
from harness.ground.progress.channel import Listener
from harness.ground.progress.drawing import Drawing
from harness.ground.progress.screen import Screen
from harness.ground.progress.state import Lines, RunState

_PERIOD_S: Final = 0.125
_STOP_S: Final = 2.0


class Show:
    """The live lines of a run, from `start` to `stop`; both may be called again."""

    def __init__(
        self,
        state: RunState,
        *,
        colours: bool,
        listener: Listener | None,
        earlier: Callable[[], Mapping[str, float]],
    ) -> None:
        """`earlier` is asked once, by the thread, how long cases took before: it may take long."""
        self.state = state
        self._colours = colours
        self._listener = listener
        self._earlier: Callable[[], Mapping[str, float]] | None = earlier
        self._merged = Lines()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._shown = contextlib.ExitStack()

    def start(self, file: TextIO, width: Callable[[], int]) -> Screen:
        """Returns a stand-in for `file`. The lines are drawn below what is written to that.

        `width` is that of the line being written. Raises OSError if that is no file of a terminal.
        """
        unicode = (file.encoding or "").lower().replace("-", "") == "utf8"
        drawing = Drawing(colours=self._colours, unicode=unicode)

        def lines(columns: int, rows: int) -> Sequence[str]:
            with self._lock:
                return drawing.lines(self.state, time.monotonic(), columns, rows)

        screen = Screen(file, lines, width)
        self._shown.callback(screen.close)
        self._over.clear()
        thread = threading.Thread(
            target=self._work, args=[screen], name="qnn-harness-live", daemon=True
        )
        self._shown.callback(thread.join, _STOP_S)
        self._shown.callback(self._over.set)
        self._shown.enter_context(followed_by(self._follow))
        thread.start()
        return screen

    def stop(self) -> None:
        """Takes the lines away; waits for the thread a few seconds at most."""
        self._shown.close()

    def ended(self, case: str, seconds: float, *, failed: bool, lab: bool) -> None:
        """A case is over, as `RunState.ended`."""
        with self._lock:
            self.state.ended(case, seconds, failed=failed, lab=lab)

    def _follow(self, device: str, facts: Mapping[str, object]) -> None:
        with self._lock:
            merged = self._merged.merge(device, facts)
            if merged is not None:
                self.state.take(*merged, time.monotonic())

    def _work(self, screen: Screen) -> None:
        # a terminal that is gone, or any fault of ours, must not be the run's
        with contextlib.suppress(Exception):
            drawn_at = 0.0
            while not self._over.is_set():
                if self._earlier is not None:
                    earlier, self._earlier = self._earlier, None
                    durations = earlier()
                    with self._lock:
                        self.state.expect(durations)
                if self._listener is None:
                    self._over.wait(_PERIOD_S)
                else:
                    for device, facts in self._listener.wait(_PERIOD_S):
                        self._follow(device, facts)
                now = time.monotonic()
                if now - drawn_at >= _PERIOD_S and not self._over.is_set():
                    drawn_at = now
                    screen.draw()
            return
        screen.close()
