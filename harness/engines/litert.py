"""LiteRT, which compiles a .tflite on this computer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.engine import Engine, EngineProgram, require_no_graph
from harness.core.errors import ConfigError

if TYPE_CHECKING:
    from harness.bench.bench import Bench
    from harness.bench.case_session import Observation
    from harness.bench.target import Target
    from harness.models.artefact_sources import ModelOptions, WholeFile


class LiteRT(Engine):
    """LiteRT's compiler, whose partitions run as contexts."""

    name = "litert"
    title = "LiteRT"
    kinds = ("tflite",)
    default_for = ("tflite",)
    backends = ("htp",)
    method = "litert"
    has_compilers = True
    test = "test_model"

    def program(self, target: Target) -> EngineProgram | None:
        """Fetch the compiler; nothing of it is on the device."""
        from harness.models.litert import litert_host

        litert_host(target.provisioner.catalog, target.compiler)
        return None

    def cases(self, path: Path, options: ModelOptions) -> list[WholeFile]:
        """Return one case: all partitions that the compiler makes of the model."""
        from harness.bench.litert import open_model
        from harness.models.artefact_sources import WholeFile
        from harness.models.source import ANY_DISTANCE

        require_no_graph(self, path, options)
        if options.expected is not None:
            problem = f"{self.title} computes what is expected on this computer's CPU: leave it out"
            raise ConfigError(problem, file=path, field="expected")
        open_model(path)
        options.require_no_original(path)
        if options.closeness and not options.tolerance:
            options = replace(options, tolerance=ANY_DISTANCE)
        return [WholeFile.of(path, (), options, ())]

    def run(self, bench: Bench, workload: WholeFile) -> Observation:
        """Compile the model and run its partitions, with the outputs of LiteRT's CPU."""
        options = workload.options
        return bench.litert(
            workload.path,
            inputs=options.inputs,
            tolerance=options.tolerance,
            rounds=workload.rounds,
        )
