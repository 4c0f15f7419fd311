"""What this computer makes for devices: libraries, programs, contexts, ONNX files."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from harness.contexts.capacity.forecasts import Forecasts
from harness.contexts.compiler.litert import litert_host
from harness.contexts.compiler.models import Model, OnnxFiles
from harness.contexts.context.metadata import named_build
from harness.contexts.context.schedule import Schedule
from harness.contexts.context.source import Context, Reference
from harness.contexts.sources.contexts import Contexts, Made, Source
from harness.ground.errors import ConfigError, HarnessError
from harness.ground.facts.engines import ENGINES, EXECUTORCH
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.executorch import (
    EXECUTORCH_LIBRARIES,
    EXECUTORCH_VERSION,
    OWN_BUILD,
    RUNNER,
    runner_files,
)
from harness.libraries.runtimes.preflight import ContextFacts
from harness.libraries.runtimes.runtime import Runtime
from harness.probe.build import PROBE_NAME, ProbeBuilder
from harness.run.workbench.libraries import RunLibraries, preflight_context, preflight_file
from harness.run.workbench.materials import EngineProgram, Materials
from harness.run.workbench.placement import Need, Placement
from harness.verdict.results.record import RuntimeRecord


class TargetSpec(Protocol):
    """What must be known of a device to make something for it."""

    @property
    def target(self) -> str:
        """What libraries for it are built for, such as `android-arm64`."""

    @property
    def htp_arch(self) -> int | None:
        """73 for v73; None if nobody knows."""

    def unknown_arch(self) -> ConfigError:
        """What to tell where nobody knows its HTP."""

    @property
    def android_api(self) -> int | None:
        """That of its Android; None elsewhere."""


class Supplies:
    """Fetches, builds and compiles, each thing once for all devices. Methods raise HarnessError."""

    def __init__(self, catalog: Catalog, cache: Path, executorch: Path | None = None) -> None:
        """`executorch` is the folder of a user's own build of ExecuTorch."""
        self.catalog = catalog
        self._own_executorch = executorch
        self.libraries = RunLibraries(catalog, cache, own_executorch=executorch is not None)
        self.probes = ProbeBuilder(cache / "probe")
        self.contexts = Contexts(cache, catalog, self.probes)
        self.forecasts = Forecasts(cache, self.probes)
        self.onnx = OnnxFiles(cache)
        self._built: dict[tuple[str, int | None], Path] = {}

    def materialise(self, need: Need, device: TargetSpec, *, strict: bool) -> Materials:
        """All that a case has on its device, made on this computer.

        What only some cases take and cannot be had is left out, and so is wrong input: such a case
        is told when it asks for it. With `strict` that is raised. What the engine of all of them
        takes must be had. What a compiler refuses is left out in any case: that is an answer about
        the compiler, which its own case gives.
        """
        stock, contexts = Stock(self, need.placement, device), dict[Source, Context]()
        runtime, probe = stock.runtime, self.probe(device.target, device.android_api)
        for source, made in stock.contexts(need.contexts).items():
            if isinstance(made, Context):
                contexts[source] = made
            elif strict and isinstance(made, ConfigError):
                raise made
        models: dict[Model, tuple[Path, Reference]] = {}
        program: EngineProgram | None = None
        with contextlib.nullcontext() if strict else contextlib.suppress(HarnessError):
            models = stock.models(need.models)
        with contextlib.nullcontext() if strict else contextlib.suppress(ConfigError):
            program = stock.program
            if ENGINES[need.placement.engine].compiles is not None:
                litert_host(self.catalog, stock.compiler)
        return Materials(runtime, probe, contexts, models, program, need.files)

    def probe(self, target: str, android_api: int | None) -> Path:
        """The probe for a target; `android_api` is that of the device, for Android."""
        if (target, android_api) not in self._built:
            self._built[target, android_api] = self.probes.build(target, android_api=android_api)
        return self._built[target, android_api]

    def program(self, engine: str, target: str) -> EngineProgram | None:
        """What an engine brings to a device in the place of our probe; None where the probe serves.

        Raises ConfigError for a build of the user's without a runner, or for another target, and
        for a device that ExecuTorch's wheel has no libraries for.
        """
        if engine != EXECUTORCH.name:
            return None
        if self._own_executorch is not None:
            files = runner_files(self._own_executorch, target)
            return EngineProgram("executorch-build", OWN_BUILD, RUNNER, files, is_own=True)
        return EngineProgram(
            "executorch", EXECUTORCH_VERSION, PROBE_NAME, self.executorch(target), is_own=False
        )

    def executorch(self, target: str) -> dict[str, Path]:
        """The probe with ExecuTorch in it, and the libraries that are to lie beside it, by name."""
        wheel = self.catalog.executorch(target)
        root = wheel.path / "executorch"
        identity = " ".join(
            wheel.files[f"executorch/lib/{name}"].sha256 for name in EXECUTORCH_LIBRARIES
        )
        program = self.probes.build_with_executorch(root, identity)
        libraries = {name: root / "lib" / name for name in EXECUTORCH_LIBRARIES}
        return {PROBE_NAME: program, **libraries}


@dataclass(frozen=True)
class Stock:
    """What this computer has for the cases of one placement. Everything raises HarnessError."""

    supplies: Supplies
    placement: Placement
    device: TargetSpec

    @property
    def runtime(self) -> Runtime:
        arch = self.device.htp_arch if self.placement.backend == "htp" else None
        return self.supplies.libraries.runtime(self.placement, self.device.target, arch)

    @cached_property
    def record(self) -> RuntimeRecord:
        return self.supplies.libraries.identity(self.placement, self.device.target)

    @property
    def program(self) -> EngineProgram | None:
        return self.supplies.program(self.placement.engine, self.device.target)

    @property
    def htp_arch(self) -> int:
        if (arch := self.device.htp_arch) is None:
            raise self.device.unknown_arch()
        return arch

    @property
    def compiler(self) -> str:
        known = self.placement.compiler
        return known or self.supplies.catalog.compiler_for(self.placement.qnn, self.device.target)

    def contexts(self, sources: Sequence[Source]) -> Made:
        """The contexts of these sources, or why there is none; as `Contexts.of`."""
        compiled = any(one.compiled for one in sources)
        compiler, arch = (self.compiler, self.htp_arch) if compiled else (None, None)
        return self.supplies.contexts.of(sources, compiler, arch)

    def models(self, models: Sequence[Model]) -> dict[Model, tuple[Path, Reference]]:
        """The ONNX files of these models, with what goes with them."""
        onnx, references = self.supplies.onnx, self.references(models)
        return {model: (onnx.path(model), made) for model, made in references.items()}

    def references(self, models: Sequence[Model]) -> dict[Model, Reference]:
        """The inputs and expected outputs of these models."""
        if not models:
            return {}
        made = self.supplies.contexts.references(models, self.compiler)
        return dict(zip(models, made, strict=True))

    def builds(self, sources: Sequence[Source]) -> list[str]:
        """The QNN builds that files name as theirs, as far as they can be read."""
        metadata = self.supplies.contexts.metadata(sources).values()
        return [build for told in metadata if (build := named_build(told)) is not None]

    def context_facts(self, sources: Sequence[Source], made: Materials) -> list[ContextFacts]:
        """What preflight wants to know of the contexts that a case takes, whatever loads them."""
        if self.placement.takes_contexts:
            return [preflight_context(str(source), one) for source, one in made.contexts.items()]
        inside = self.supplies.contexts.metadata(sources)
        return [preflight_file(str(source), told) for source, told in inside.items()]

    def forecast(self, contexts: Sequence[Context], steps: Schedule) -> dict[str, object] | None:
        """What is forecast for a schedule over contexts; as `Forecasts.of`."""
        return self.supplies.forecasts.of(self.runtime, contexts, steps.moves)
