"""What executes on a device: the probe alone, or a runtime that the probe drives. As data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harness.ground.facts.backends import BACKENDS, Backend


@dataclass(frozen=True)
class Engine:
    """One engine. `name` is what markers, options and records call it, `title` what people do.

    `test` is the test of `pytest_plugin/own_cases.py` that runs a user's file with it. `suite` is
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
