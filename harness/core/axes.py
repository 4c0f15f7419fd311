"""What cases of one test differ in: axes, engines and backends, an entry for each."""

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
    """The backend of that name; None if there is none."""
    return next((backend for backend in BACKENDS if backend == name), None)


@dataclass(frozen=True)
class Engine:
    """One engine. `name` is what markers, options and records call it, `title` what people do.

    `test` is the test of `plugin/builtin_tests.py` that runs a user's file with it. `suite` is
    what records call the suite of such cases. `option` chooses its version, None: it has none.

    `takes_contexts`: contexts are given to it one by one, made by a compiler or taken out of files.
    Any other engine loads a file as it is. `takes_models`: it makes graphs on the device itself.
    `compiles` is the kind of artefact that it compiles here, before anything of it is loaded there.
    `runs_whole` is the kind with contexts of which it runs all else, too.

    `libraries` is the entry of `needed_files.ENGINES` whose libraries it takes; None: that of its
    name, or one of several that depends on what there is. `backends` are those that it runs on.
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
"""All of them by name, the usual one first."""


@dataclass(frozen=True)
class Axis:
    """One axis. `name` is what records, conditions of known issues and `--axis` call it.

    `option` of pytest chooses its values, None: they follow from another axis. `type` says how a
    value is read. A "version" is looked for among those that there are, and its commas may be of a
    range. A "name" stands for itself, and lists of names are split at commas. `values` are all
    names that there are, empty where only the lab or the catalog knows.

    `in_axes`: a record has it among its `axes`, null where the case takes none of it. The others
    stand in fields of their own. `mark` stands before its value in the name of a case, which tells
    it only where it is not the usual one.
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
"""All axes by name. No parameter of a test is called like one."""

VERSIONS: Final = tuple(axis.name for axis in AXES.values() if axis.type == "version")
"""The axes whose values are versions: a bisection searches along these."""

IN_AXES: Final = tuple(axis.name for axis in AXES.values() if axis.in_axes)
"""The axes that stand among the `axes` of every record."""


if TYPE_CHECKING:
    AxisName = str
else:  # for models and their schemas, which name the values
    AxisName = Literal[VERSIONS]
