"""Where context binaries come from: models compiled here, or files as they lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, runtime_checkable

from harness.contexts.context.metadata import entries, named_build, needs
from harness.ground.errors import ConfigError

# The ids that libQnnSystem gives them.
BACKENDS_BY_ID: Final[Mapping[object, str]] = MappingProxyType({4: "gpu", 6: "htp"})

ON_CPU: Final = "ONNX Runtime on the CPU"
GIVEN: Final = "the expected files"
"""What outputs are told against, in plain words."""

ANY_DISTANCE: Final = 1e299
"""The tolerance of outputs of which something else is asked: the probe takes less than 1e300."""


MADE_UP: Final = "made up"
IN_RANGE: Final = "made up in range"
READ: Final = "given"
"""What inputs are, in plain words."""

CONDITIONS: Final = "--max-error, --min-cosine, --min-sqnr"


@dataclass(frozen=True)
class ClosenessAsked:
    """What a user asks of every output; None: it is only told.

    `max_relative` is for the largest error as a part of the largest value. `original` is the .onnx
    whose outputs they are told against, where it is not the model itself.
    """

    max_error: float | None = None
    min_cosine: float | None = None
    min_sqnr: float | None = None
    original: Path | None = None
    max_relative: float | None = None

    def __post_init__(self) -> None:
        for option, value, least, most, valid in (
            ("--max-error", self.max_error, 0.0, math.inf, "0 or more"),
            ("--min-cosine", self.min_cosine, -1.0, 1.0, "from -1 to 1"),
            ("--min-sqnr", self.min_sqnr, -math.inf, math.inf, "a number of dB"),
        ):
            if value is not None and not (math.isfinite(value) and least <= value <= most):
                raise ConfigError(f"{value} is not {valid}", field=option)

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return replace(self, original=None) != ClosenessAsked()


@runtime_checkable
class ContextSource(Protocol):
    """Something that tests take contexts of. Its `str` names it in cases, axes and reports.

    Sources are values: equal ones give the same contexts. A source that is `compiled` gives another
    binary for each QNN compiler and HTP architecture; any other has one binary. Outputs may differ
    from what is expected by `tolerance`, in units of the raw values.
    """

    @property
    def compiled(self) -> bool:
        """Whether a compiler is started here to make its contexts: a test has that axis then."""

    @property
    def tolerance(self) -> float:
        """By how much an output may differ from what is expected."""

    def seen_from(self, folder: Path) -> Self:
        """This source, with relative paths meant from a folder, which is that of the test."""


@dataclass(frozen=True)
class Context:
    """A context binary on the host, and what is known of it (size in bytes).

    `compiler` is the QNN version that was asked to make it, None for one that nobody made here.
    `inputs` and `expected` are raw files, one per tensor in the order of graph number `graph`;
    nothing is compared where `expected` is empty. `generated_inputs`: nobody gave any.
    `reference` are such files that outputs are told against, whatever comes of that; `against` says
    in plain words what they are. `memory_bytes` is what the metadata says a device needs for it:
    I/O, constants and spill-fill.
    `max_size` is what ORT's EPContext model says of its spill-fill (None: nothing). `others` are
    this binary once more for each other graph that is executed, with the files of that graph.
    """

    path: Path
    sha256: str
    size: int
    source: ContextSource
    compiler: str | None
    htp_arch: int | None
    inputs: tuple[Path, ...]
    expected: tuple[Path, ...]
    tolerance: float
    metadata: Mapping[str, Any]
    memory_bytes: int
    max_size: int | None = None
    graph: int = 0
    generated_inputs: bool = False
    others: tuple[Context, ...] = ()
    reference: tuple[Path, ...] = ()
    against: str = ""

    @property
    def graph_name(self) -> str | None:
        """The graph's name where the binary has several, and may have it executed beside others."""
        graphs = entries(self.metadata, "graphs")
        return str(graphs[self.graph].get("name")) if len(graphs) > 1 else None

    @property
    def made_by(self) -> str | None:
        """The QNN version that made it: the compiler's, else the build that the binary names."""
        return self.compiler or named_build(self.metadata)

    @property
    def backend(self) -> str | None:
        """The backend that it is for, if it says so."""
        return BACKENDS_BY_ID.get(self.metadata.get("backend_id"))

    def facts(self) -> dict[str, object]:
        """What a record says of a context that nobody compiled here."""
        executed = (self, *self.others)
        return {
            "sha256": self.sha256,
            "bytes": self.size,
            "build_id": self.metadata.get("build_id"),
            "htp_arch": self.htp_arch,
            **needs(self.metadata),
            "inputs": "generated" if self.generated_inputs else "given",
            "outputs": "compared" if self.expected else "nothing expected",
            **({"graphs": [one.graph_name for one in executed]} if self.graph_name else {}),
        }


def with_files(told: Mapping[str, Any], files: Iterable[Context]) -> dict[str, Any]:
    """What a record says of files by name, with these added (pure); a second name is `name (2)`."""
    found = dict(told)
    for file in files:
        name, facts, number = str(file.source), file.facts(), 1
        while found.setdefault(name, facts) != facts:
            number += 1
            name = f"{file.source} ({number})"
    return found


@dataclass(frozen=True)
class Reference:
    """Raw files of a model's inputs and of ORT's outputs on the CPU, in the order of the model."""

    inputs: tuple[Path, ...]
    expected: tuple[Path, ...]
