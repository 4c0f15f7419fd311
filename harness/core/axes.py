"""Tables of the axes of a matrix, and of engines and backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

Backend = Literal["htp", "gpu", "cpu"]
BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)

BACKEND_LIBRARIES: Final[Mapping[str, str]] = MappingProxyType(
    {"htp": "libQnnHtp.so", "gpu": "libQnnGpu.so", "cpu": "libQnnCpu.so"}
)
RPC_LIBRARY: Final = "libcdsprpc.so"
"""The library by which the HTP's stubs reach the DSP: the device's own, which is never pushed."""


def backend_of(name: str) -> Backend | None:
    """Return the backend of that name, None if there is none."""
    return next((backend for backend in BACKENDS if backend == name), None)


@dataclass(frozen=True)
class Engine:
    """One engine: `name` in markers, options and records, `title` in texts for people.

    `test` is the test of `plugin/builtin_tests.py` that runs a user's file with it, `suite` the
    suite of such cases in records. `option` chooses its version; None if it has none.

    `takes_contexts`: it loads contexts one by one, from a compiler or extracted from files; other
    engines load a file as it is. `takes_models`: it builds graphs on the device itself. `compiles`
    is the kind of artefact that is compiled on the host before it is loaded on the device.
    `runs_whole` is the kind of file with contexts whose other parts it runs, too.

    `libraries` is the entry of `needed_files.ENGINES` with its libraries; None for the entry of its
    own name, or one that depends on the available files. `backends` are those it runs on.
    """

    name: str
    title: str
    test: str
    suite: str
    option: str | None = None
    takes_contexts: bool = False
    takes_models: bool = False
    compiles: str | None = None
    runs_whole: str | None = None
    libraries: str | None = None
    backends: tuple[Backend, ...] = BACKENDS

    @property
    def has_compilers(self) -> bool:
        return self.takes_contexts or self.takes_models or self.compiles is not None


QNN: Final = Engine("qnn", "the probe", "test_contexts", "run_contexts", takes_contexts=True)
ORT: Final = Engine(
    "ort",
    "ONNX Runtime",
    "test_session",
    "run_ort",
    option="ort",
    takes_models=True,
    runs_whole="epcontext",
)
EXECUTORCH: Final = Engine(
    "executorch",
    "ExecuTorch",
    "test_program",
    "run_executorch",
    option="executorch",
    runs_whole="pte",
    backends=("htp",),
)
LITERT: Final = Engine(
    "litert",
    "LiteRT",
    "test_model",
    "run_litert",
    compiles="tflite",
    libraries="qnn",
    backends=("htp",),
)

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {engine.name: engine for engine in (QNN, ORT, EXECUTORCH, LITERT)}
)
"""All engines by name, the default first."""


@dataclass(frozen=True)
class Axis:
    """One axis; `name` is its name in records, conditions of known issues and `--axis`.

    `option` is the pytest option for its values; None if they follow from another axis. A value of
    `type` "version" is matched against the available versions, and may be a range with commas; a
    "name" stands for itself, and lists of names are split at commas. `values` are all names, or
    empty if only the lab or the catalog knows them.

    `in_axes`: records have it among their `axes`, null for a case without it; other axes are fields
    of their own. `mark` precedes its value in the name of a case, which has only values other than
    the default.
    """

    name: str
    type: Literal["version", "name"]
    option: str | None = None
    values: tuple[str, ...] = ()
    in_axes: bool = False
    mark: str | None = None


AXES: Final[Mapping[str, Axis]] = MappingProxyType(
    {
        axis.name: axis
        for axis in (
            Axis("device", "name", "--qnn-device"),
            Axis("soc", "name"),
            Axis("engine", "name", "--qnn-engine", tuple(ENGINES)),
            Axis("backend", "name", "--qnn-backend", BACKENDS, in_axes=True),
            Axis("qnn", "version", "--qnn-version", in_axes=True),
            Axis("ort", "version", "--qnn-ort", in_axes=True, mark="ort"),
            Axis("compiler", "version", "--qnn-compiler", in_axes=True, mark="by"),
        )
    }
)
"""All axes by name. No parameter of a test has the name of an axis."""

VERSIONS: Final = tuple(axis.name for axis in AXES.values() if axis.type == "version")
"""The axes whose values are versions: a bisection searches along these."""

IN_AXES: Final = tuple(axis.name for axis in AXES.values() if axis.in_axes)
"""The axes that are among the `axes` of every record."""


if TYPE_CHECKING:
    AxisName = str
else:  # for models and their schemas, which name the values
    AxisName = Literal[VERSIONS]
