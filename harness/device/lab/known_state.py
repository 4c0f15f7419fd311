"""What is known of a device from case to case: a file, which is its lease holder's.

Who takes the device takes the file with it, and writes it anew when it gives the device back. So
what the file says was seen by the last holder; after one that died there is none, and the device is
looked at anew.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.device.lab.health import Fitness, Out
from harness.device.lab.lease_files import device_file
from harness.device.lab.vitals import Vitals
from harness.ground.errors import InfraError
from harness.ground.files.whole_file import read_json, write_whole

_MAX_BYTES: Final = 256 << 10
_COUNTS: Final = ("strikes", "cases_lost", "switches", "cases")
_TIMES: Final = ("checked", "switch_at")
AROUND: Final = ("hottest_c", "clock_limit_khz", "governor")
"""What is kept of what a device said of itself."""


@dataclass
class KnownState:
    """How a device has done, and which sets of files (`lies`) were put there.

    `identity` and `device_ids` are what it said it is in the run that asks.
    """

    fitness: Fitness = field(default_factory=Fitness)
    lies: frozenset[str] = frozenset()
    identity: tuple[str, ...] = ()
    device_ids: frozenset[str] = frozenset()


class KnownStates:
    """A folder with one small file per device; `device` is what makes a device unique."""

    def __init__(self, folder: Path, run: str) -> None:
        """Cases are counted for each `run`, in which a device has to stay the same one."""
        self._folder, self._run = folder, run

    def take(self, device: str) -> KnownState:
        """Reads and removes what is known of a device that is held; nothing is known of others."""
        state = self.look(device)
        with contextlib.suppress(OSError):
            self._file(device).unlink()
        return state

    def look(self, device: str) -> KnownState:
        """What is known of a device that nobody holds. Damaged files say nothing."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            said = read_json(self._file(device), _MAX_BYTES)
            state = _parsed(said)
            if said["run"] != self._run:
                state.fitness.cases = 0
                state.identity, state.device_ids = (), frozenset()
            return state
        return KnownState()

    def keep(self, device: str, state: KnownState) -> None:
        """Writes down what is known of a device that is about to be given back.

        Where that is impossible, whoever comes next looks anew.
        """
        file, fitness = self._file(device), state.fitness
        plain: dict[str, Any] = {
            **{name: getattr(fitness, name) for name in (*_COUNTS, *_TIMES, "is_fit", "epoch")},
            "lies": sorted(state.lies),
            "identity": state.identity,
            "device_ids": sorted(state.device_ids),
            "run": self._run,
        }
        if fitness.out is not None:
            plain["out"] = [str(fitness.out.error), fitness.out.look_at]
        if fitness.vitals is not None:
            seen_at, vitals = fitness.vitals
            plain["vitals"] = [seen_at, {name: getattr(vitals, name) for name in AROUND}]
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(plain).encode(), durable=False)

    def _file(self, device: str) -> Path:
        return self._folder / f"{device_file(device)}.json"


def _parsed(said: Any) -> KnownState:
    fitness = Fitness(is_fit=said["is_fit"] is True, epoch=str(said["epoch"]))
    for name in _COUNTS:
        setattr(fitness, name, int(said[name]))
    for name in _TIMES:
        setattr(fitness, name, float(said[name]))
    if (out := said.get("out")) is not None:
        fitness.out = Out(InfraError(str(out[0])), float(out[1]))
    if (seen := said.get("vitals")) is not None:
        fitness.vitals = float(seen[0]), Vitals(**{name: seen[1][name] for name in AROUND})
    return KnownState(
        fitness,
        frozenset(map(str, said["lies"])),
        tuple(map(str, said["identity"])),
        frozenset(map(str, said["device_ids"])),
    )
