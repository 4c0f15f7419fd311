"""What happened to a device of the lab besides running cases: checks, recovery, quarantine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from harness.lab.health import State
from harness.lab.vitals import Vitals

EventKind = Literal[
    "health",
    "reconnect",
    "end-leftovers",
    "restart-server",
    "reboot",
    "quarantine",
    "healed",
    "gate",
]


@dataclass(frozen=True)
class LabEvent:
    """One check of a device or one thing done to it, and how the device was afterwards.

    `codes` are those of the findings, `detail` says it all for people; `vitals` is what the device
    said of itself, None if it did not answer.
    """

    device: str
    event: EventKind
    state: State
    codes: tuple[str, ...]
    detail: str
    started: datetime
    duration_s: float
    vitals: Vitals | None = None


Tell = Callable[[LabEvent], None]
