"""Placements of cases, and the requirements of cases (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.engine import DEFAULT_ENGINE, ENGINES
from harness.core.matrix_axes import IN_AXES
from harness.models.builtin_models import Model
from harness.models.contexts import Source
from harness.results.record import PlacementRecord


class Placement(PlacementRecord):
    """The placement that a case runs with; `record` is what its record has.

    It has names instead of objects, because cases pass it to other processes by name: of devices,
    and of versions in the catalog. `ort` is None for the runtime's own ONNX Runtime or the usual
    one. `compiler` makes the contexts that are compiled; None if the case has none. With a `pool`,
    a name that devices share, any device of `among` will do; `device` is then the one that the case
    is on, or would be on if only one process ran cases.
    """

    engine: str = DEFAULT_ENGINE
    ort: str | None = None
    pool: str = ""
    among: tuple[str, ...] = ()

    @property
    def candidates(self) -> tuple[str, ...]:
        return self.among or (self.device,)

    @property
    def is_shared(self) -> bool:
        return len(self.candidates) > 1

    @property
    def device_name(self) -> str:
        return self.pool or self.device

    def on(self, device: str) -> Placement:
        """Return the placement on this device, one of its candidates.

        Raises ValueError for any other device: the verdict would be recorded for the wrong one.
        """
        if device not in self.candidates:
            raise ValueError(f"a case planned for {self.device_name} cannot run on {device}")
        return self.model_copy(update={"device": device})

    @property
    def deployment_key(self) -> str:
        """A name for the files that it needs on a device, the same for all devices."""
        return str(self.model_copy(update={"device": "", "pool": "", "power": None}))

    @property
    def takes_contexts(self) -> bool:
        return ENGINES[self.engine].takes_contexts

    @property
    def takes_models(self) -> bool:
        return ENGINES[self.engine].takes_models

    @property
    def qnn_version(self) -> str:
        return self.qnn.rpartition(":")[2]

    @property
    def axes(self) -> dict[str, str | None]:
        values = {name: getattr(self, name) for name in IN_AXES}
        return {name: value and value.rpartition(":")[2] for name, value in values.items()}

    @property
    def record(self) -> PlacementRecord:
        values = {name: getattr(self, name) for name in PlacementRecord.model_fields}
        values["device"] = self.device_name
        # 2.51.0 and 2.51.0.260929 are the same version
        if f"{self.qnn_version}.".startswith(f"{self.compiler}."):
            values["compiler"] = None
        return PlacementRecord.model_construct(**values)

    def __str__(self) -> str:
        return str(self.record)

    # other plug-ins of pytest (allure) show parameters by their repr
    __repr__ = __str__


@dataclass(frozen=True)
class Need:
    """The requirements of one case: a placement, and the sources of its contexts.

    `files` are files of a user that an engine loads as they are.
    """

    placement: Placement
    sources: tuple[Source, ...]
    files: tuple[Path, ...] = ()

    @property
    def contexts(self) -> tuple[Source, ...]:
        """The sources whose contexts are prepared before the case starts."""
        if not self.placement.takes_contexts:
            return ()
        compiled = self.placement.backend == "htp"  # others get one only if a case asks for it
        return tuple(source for source in self.sources if compiled or not source.compiled)

    @property
    def models(self) -> tuple[Model, ...]:
        if not self.placement.takes_models:
            return ()
        return tuple(source for source in self.sources if isinstance(source, Model))


def merge_pools(placements: Iterable[Placement], names: Mapping[str, str]) -> list[Placement]:
    """Merge placements that differ only in the device, for devices of one pool (pure).

    `names` maps devices to the names of their pools.
    """
    together: dict[Placement, list[str]] = {}
    for placement in placements:
        pool = names.get(placement.device)
        key = placement.model_copy(update={"device": "", "pool": pool} if pool else {})
        together.setdefault(key, []).append(placement.device)
    return [
        placement.model_copy(update={"device": devices[0], "among": tuple(devices)})
        if placement.pool
        else placement
        for placement, devices in together.items()
    ]
