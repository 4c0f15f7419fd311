"""What devices were like before their cases: what evidence is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.adb.evidence import take_baseline
from harness.adb.evidence_report import Baseline
from harness.errors import InfraError
from harness.lab.attach import AttachedDevice

_TIMEOUT_S: Final = 10.0


class Baselines:
    """One per device, asked once; `device` gives the device of a name."""

    def __init__(self, device: Callable[[str], AttachedDevice]) -> None:
        self._device = device
        self._known: dict[str, Baseline | None] = {}

    def of(self, name: str) -> Baseline | None:
        """What a device was like before its cases; None if it does not say."""
        if name not in self._known:
            try:
                self._known[name] = take_baseline(self._device(name).adb, timeout_s=_TIMEOUT_S)
            except InfraError:
                self._known[name] = None
        return self._known[name]

    def keep(self, name: str, baseline: Baseline | None) -> None:
        """Takes note of what a device has become, so that the next case is not told of it."""
        if baseline is not None:
            self._known[name] = baseline

    def forget(self, name: str) -> None:
        """Has a device asked again."""
        self._known.pop(name, None)
