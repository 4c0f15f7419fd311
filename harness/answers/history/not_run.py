"""How many cases of a run left no record, found in a flat amount of memory."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from harness.verdict.failure.error import Part
from harness.verdict.results.coverage import selected_of

_SAID: Final = ("selected", "finished", "problem")
_HASH: Final = (1 << 62) - 1


class LackingRun(Part):
    """A run in which `not_run` cases left no record; null where it does not say how many it had."""

    run: str
    started: str
    not_run: int | None


class Names:
    """How many cases were met, by their names: eight bytes for each time."""

    def __init__(self) -> None:
        self._met = array("q")

    def add(self, name: str, *, fits: bool) -> None:
        """One more record; `fits` tells whether a device of the lab fits its case."""
        self._met.append((hash(name) & _HASH) << 1 | fits)

    def not_run(self, info: Mapping[str, Any]) -> int | None:
        """How many cases of the run left no record, by its run.json; None if nobody knows."""
        met = np.frombuffer(self._met, dtype=np.int64)
        met.sort()
        ends = np.append(met[1:] >> 1 != met[:-1] >> 1, [True] * bool(met.size))
        seen = int(ends.sum())
        unfit = seen - int((met[ends.nonzero()] & 1).sum())  # the last of a name fits if any does
        selected = selected_of(info, seen, unfit)
        return None if selected is None else selected - seen


def said_of_selection(info: Mapping[str, Any]) -> str:
    """What a run.json says that this depends on, to be compared with what it said before."""
    return json.dumps([info.get(name) for name in _SAID])
