"""A relay that disturbs its link at random, by a seed: cut, reset, stall, slow, damaged bytes."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from dataclasses import dataclass, replace
from typing import Final

from tests.integration.transport.adb.faulty_link import FaultyLink

CASE_S: Final = 3.0
"""The deadline of each disturbed case; stalls are drawn around it."""

_MARKS: Final = ("start", "begin", "end", "done", "deadline")
_STALLS: Final = (0.2, 1.0, CASE_S - 0.3, CASE_S, CASE_S + 0.3, CASE_S + 2.5, CASE_S + 10.0, 20.0)
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_KEPT: Final = 64


@dataclass(frozen=True)
class Disturbance:
    """A disturbance of a link, after an event of the probe, so many bytes, or a time."""

    action: str
    seconds: float = 0.0
    event: str | None = None
    byte_count: int | None = None
    wait_s: float | None = None
    to_device: bool = False
    bytes_per_s: float = 0.0
    place: int = 0
    """Of damaged bytes: which ones of the piece that is passing, and which bit of them."""

    @staticmethod
    def drawn(seed: int) -> Disturbance:
        """The disturbance that belongs to a seed; many of them strike while the probe runs."""
        draw = random.Random(seed)
        # stalls are what can be taken for a target that hangs
        actions = ("cut", "reset", "stall", "stall", "stall", "slow", "drop", "repeat", "flip")
        action = draw.choice(actions)
        event = byte_count = wait_s = None
        match draw.choice(("event", "event", "bytes", "time")):
            case "event":
                event = draw.choice(_MARKS)
            case "bytes":
                byte_count = int(10 ** draw.uniform(0, 5))
            case _:
                wait_s = draw.uniform(0, 1.5 * CASE_S)
        seconds = draw.choice(_STALLS) * draw.uniform(0.9, 1.1)
        return Disturbance(
            action=action,
            seconds=seconds if action in ("stall", "slow") else draw.choice((0.0, 0.5, 2.0)),
            event=event,
            byte_count=byte_count,
            wait_s=wait_s,
            to_device=draw.random() < 0.4,
            bytes_per_s=10 ** draw.uniform(3, 5),
            place=draw.randrange(1 << 30),
        )

    def damaged(self, data: bytes) -> bytes:
        """`data` with bytes lost, repeated or changed."""
        start = self.place % len(data)
        end = min(len(data), start + 1 + self.place // 7 % 40)
        match self.action:
            case "drop":
                return data[:start] + data[end:]
            case "repeat":
                return data[:end] + data[start:]
            case _:
                changed = data[start] ^ 1 << self.place % 8
                return data[:start] + bytes([changed]) + data[start + 1 :]


class ChaosLink(FaultyLink):
    """A FaultyLink that is given one Disturbance at a time.

    `is_legible`: the events of a probe can be read as they pass. Where all is enciphered, a
    disturbance behind an event strikes behind so many bytes in its place.
    """

    def __init__(self, target: str, *, is_legible: bool = True) -> None:
        super().__init__(target)
        self._is_legible = is_legible
        self._armed: Disturbance | None = None
        self._passed = 0
        self._recent = b""
        self._timers: list[threading.Timer] = []
        self._guard = threading.Lock()

    def disturb(self, disturbance: Disturbance) -> None:
        """Waits for the moment of `disturbance`, then carries it out once."""
        if disturbance.event is not None and not self._is_legible:
            byte_count = 200 << _MARKS.index(disturbance.event)
            disturbance = replace(disturbance, event=None, byte_count=byte_count)
        with self._guard:
            self._armed, self._passed, self._recent = disturbance, 0, b""
        if disturbance.wait_s is not None:
            self._later(disturbance.wait_s, self._time_is_up, disturbance)

    def calm(self) -> None:
        with self._guard:
            self._armed = None
            timers, self._timers = self._timers, []
        for timer in timers:
            timer.cancel()
        self.resume()

    def __exit__(self, *exception: object) -> None:
        self.calm()
        super().__exit__(*exception)

    def changed(self, data: bytes, *, to_device: bool) -> bytes:
        """Return the bytes that are passed on in place of `data`."""
        with self._guard:
            armed = self._armed
            if armed is None or not self._is_due(armed, data, to_device):
                return data
            if armed.action in ("drop", "repeat", "flip"):
                if to_device != armed.to_device:
                    return data
                self._armed = None
                return armed.damaged(data)
            self._armed = None
        self._carry_out(armed)
        return data

    def _is_due(self, armed: Disturbance, data: bytes, to_device: bool) -> bool:
        if armed.wait_s is not None:
            return self._passed < 0
        self._passed += len(data)
        if armed.byte_count is not None:
            return self._passed >= armed.byte_count
        if not to_device:
            recent = self._recent + data
            self._recent = recent[-_KEPT:]
            if b'"event":"%s"' % str(armed.event).encode() in recent:
                self._passed = -(1 << 60)
        return self._passed < 0

    def _time_is_up(self, disturbance: Disturbance) -> None:
        with self._guard:
            if self._armed is not disturbance:
                return
            if disturbance.action in ("drop", "repeat", "flip"):
                self._passed = -1  # it strikes the next bytes that pass
                return
            self._armed = None
        self._carry_out(disturbance)

    def _carry_out(self, disturbance: Disturbance) -> None:
        match disturbance.action:
            case "stall":
                self.stall()
            case "slow":
                self.bytes_per_s = disturbance.bytes_per_s
            case "reset":
                with self._lock:
                    for end in self._ends:
                        with contextlib.suppress(OSError):  # it is closed already
                            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                self.cut()
            case _:
                self.cut()
        self._later(disturbance.seconds, self.resume)

    def _later(self, seconds: float, act: object, *arguments: object) -> None:
        timer = threading.Timer(seconds, act, arguments)  # type: ignore[arg-type]
        timer.daemon = True
        with self._guard:
            self._timers.append(timer)
        timer.start()
