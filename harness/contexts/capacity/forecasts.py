"""What is forecast for contexts that a case is about to load, from what was measured before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.contexts.capacity.calibration import Silent, kept_calibration, reserved
from harness.contexts.capacity.packing import Room, Size, forecast
from harness.contexts.context.schedule import Move
from harness.contexts.context.source import Context
from harness.libraries.runtimes.runtime import Runtime
from harness.probe.build import ProbeBuilder

_SIMULATED: Final = "linux-x64"


class Forecasts:
    """Forecasts for runtimes that `contexts fit` has measured."""

    def __init__(self, cache: Path, probes: ProbeBuilder) -> None:
        self._cache = cache
        self._probes = probes
        self._sizes: dict[tuple[str, str], Size | Silent] = {}

    def of(
        self, runtime: Runtime, contexts: Sequence[Context], moves: Sequence[Move]
    ) -> dict[str, object] | None:
        """What comes of moves over contexts, taken in turn: a record's `forecast`.

        None for what nobody measured: a device, a runtime that was not calibrated, a context that
        the library does not load alone. Raises InfraError if the library does not work here.
        """
        if runtime.target != _SIMULATED or not contexts:
            return None
        calibration = kept_calibration(self._cache, runtime)
        if calibration is None:
            return None
        sizes = self._measured(runtime, contexts)
        known = [size for size in sizes if isinstance(size, Size)]
        if len(known) < len(sizes):
            return None
        number = 1 + max((move.context for move in moves), default=0)
        taken = [known[at % len(known)] for at in range(number)]
        # without a limit there is room for all
        budget = calibration.budget_bytes or sum(size.total for size in taken)
        found = forecast(taken, moves, Room(budget, calibration.sessions))
        refused = found.refused and {
            "load": found.refused.load,
            "context": str(contexts[found.refused.context % len(contexts)].source),
            "bytes": taken[found.refused.context].total,
            "missing_bytes": found.refused.missing,
        }
        return {
            "loaded": found.loads,
            "first_refused": refused,
            "budget_bytes": calibration.budget_bytes,
            "used_bytes": list(found.used),
            "after_each_bytes": list(found.after_each),
        }

    def _measured(self, runtime: Runtime, contexts: Sequence[Context]) -> list[Size | Silent]:
        library = runtime.library("libQnnHtp.so")
        keys = [(str(library), context.sha256) for context in contexts]
        files = {
            key: context.path
            for key, context in zip(keys, contexts, strict=True)
            if key not in self._sizes
        }
        if files:
            sizes = reserved(self._probes.build(_SIMULATED), library, list(files.values()))
            self._sizes.update(zip(files, sizes, strict=True))
        return [self._sizes[key] for key in keys]
