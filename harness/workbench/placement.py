"""Where and with what cases run, and what they will want (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.contexts.models import ModelSpec


@dataclass(frozen=True, order=True)
class Placement:
    """Where and with what a case runs: one device, backend, runtime and compiler.

    `qnn` is the runtime's name in the catalog: 2.51.0, or sdk:2.31.0.250130.
    """

    device: str
    backend: str
    qnn: str
    compiler: str

    @property
    def qnn_version(self) -> str:
        """The runtime's version, wherever it comes from."""
        return self.qnn.rpartition(":")[2]

    def __str__(self) -> str:
        text = f"{self.device}-{self.backend}-{self.qnn}"
        return text if self.compiler == self.qnn_version else f"{text}-by-{self.compiler}"


@dataclass(frozen=True)
class Need:
    """What one case will want: a placement and the models it takes contexts of."""

    placement: Placement
    models: tuple[ModelSpec, ...]


@dataclass(frozen=True)
class PushedFile:
    """One file that a case needs on the device (for `--plan`); `size` in bytes."""

    origin: str
    name: str
    size: int


def by_placement(needs: Iterable[Need]) -> dict[Placement, tuple[ModelSpec, ...]]:
    """The models that the cases of each placement want together, in order (pure)."""
    merged: dict[Placement, dict[ModelSpec, None]] = {}
    for need in needs:
        merged.setdefault(need.placement, {}).update(dict.fromkeys(need.models))
    return {placement: tuple(models) for placement, models in merged.items()}
