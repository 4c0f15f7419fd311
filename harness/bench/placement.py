"""Where and with what cases run, and what they will want (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from harness.core.axes import AXES, ENGINES, IN_AXES, QNN, VERSIONS
from harness.models.contexts import Source
from harness.models.models import Model

# Context binaries are made for the HTP: elsewhere a case gets one if it asks, but none is expected.
_COMPILED_FOR: Final = ("htp",)


@dataclass(frozen=True, order=True)
class Placement:
    """Where and with what a case runs: one device, backend, runtime and compiler.

    Other processes are told of it in a case's name. So it has names of devices, and no device.

    `qnn` is the runtime's name in the catalog: 2.51.0, or sdk:2.31.0.250130. `engine` is the name
    of what drives the backend (`core/axes.py`). `ort` is the name of an ONNX Runtime, None for
    the runtime's own or the usual one. `compiler` makes the contexts that are compiled; None where
    a case takes none of those. With a `pool`, a name that devices share, any of `among` will do.
    `device` is the one that the case is on, or would be if only one process ran cases.
    """

    device: str
    backend: str
    qnn: str
    compiler: str | None
    engine: str = QNN.name
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
    def where(self) -> str:
        return self.pool or self.device

    def on(self, device: str) -> Self:
        """The placement on this device, one of its candidates.

        Raises ValueError for any other device: its verdict would be told under a name that is not
        its own.
        """
        if device not in self.candidates:
            raise ValueError(f"a case of {self.where} was to run on {device}")
        return replace(self, device=device)

    @property
    def what(self) -> str:
        """What lies on a device for it, wherever that is."""
        return str(replace(self, device="", pool="", among=()))

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
    def other_compiler(self) -> str | None:
        # 2.51.0 and 2.51.0.260929 are the same version
        own = f"{self.qnn_version}.".startswith(f"{self.compiler}.")
        return None if own else self.compiler

    @property
    def axes(self) -> dict[str, str | None]:
        own = {name: getattr(self, name) for name in IN_AXES}
        return own | {name: own[name] and own[name].rpartition(":")[2] for name in VERSIONS}

    @property
    def named(self) -> dict[str, str | None]:
        own = {name: getattr(self, name) for name in AXES if hasattr(self, name)}
        return own | {"device": self.where, "compiler": self.other_compiler}

    def __str__(self) -> str:
        named = self.named
        marked = ((axis.mark, named[axis.name]) for axis in AXES.values() if axis.mark)
        rest = "".join(f"-{mark}-{value}" for mark, value in marked if value is not None)
        return f"{self.where}-{self.backend}-{self.qnn}{rest}"

    # other plug-ins of pytest (allure) show parameters so
    __repr__ = __str__


@dataclass(frozen=True)
class Need:
    """What one case will want: a placement, and what it takes contexts of.

    `files` are those of a user's that an engine loads as they are.
    """

    placement: Placement
    sources: tuple[Source, ...]
    files: tuple[Path, ...] = ()

    @property
    def contexts(self) -> tuple[Source, ...]:
        """The sources of which it has contexts before it asks for any."""
        if not self.placement.takes_contexts:
            return ()
        compiled = self.placement.backend in _COMPILED_FOR
        return tuple(one for one in self.sources if compiled or not one.compiled)

    @property
    def models(self) -> tuple[Model, ...]:
        if not self.placement.takes_models:
            return ()
        return tuple(one for one in self.sources if isinstance(one, Model))


def by_placement(needs: Iterable[Need]) -> dict[Placement, tuple[Source, ...]]:
    """The sources that the cases of each placement want together, in order (pure)."""
    merged: dict[Placement, dict[Source, None]] = {}
    for need in needs:
        merged.setdefault(need.placement, {}).update(dict.fromkeys(need.sources))
    return {placement: tuple(sources) for placement, sources in merged.items()}


def shared(found: Iterable[Placement], names: Mapping[str, str]) -> list[Placement]:
    """Placements of single devices; those that share and differ only in the device, as one (pure).

    `names` has by device the name under which it shares cases.
    """
    together: dict[Placement, list[str]] = {}
    for one in found:
        if one.device in names:
            alike = replace(one, device="", pool=names[one.device])
            together.setdefault(alike, []).append(one.device)
        else:
            together[one] = []
    return [
        replace(one, device=devices[0], among=tuple(devices)) if devices else one
        for one, devices in together.items()
    ]
