"""ExecuTorch, of its wheel or of a user's own build."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.engine import Engine, EngineProgram

if TYPE_CHECKING:
    from harness.bench.bench import Bench
    from harness.bench.case_session import Observation
    from harness.bench.provisioner import Provisioner
    from harness.bench.target import Target
    from harness.models.artefact_sources import ModelOptions, WholeFile
    from harness.probe.plan import Plan


class ExecuTorch(Engine):
    """ExecuTorch, which brings a program of its own to the device."""

    name = "executorch"
    title = "ExecuTorch"
    kinds = ("pte",)
    backends = ("htp",)
    method = "executorch"
    option = "executorch"
    test = "test_program"

    def driver(self, file_names: Collection[str]) -> str:
        """Return the driver of a program that opens QNN itself."""
        return "executorch"

    def program(self, target: Target) -> EngineProgram:
        """Return the runner of a user's build, else the probe with the wheel's ExecuTorch in it.

        Raises ConfigError for a build without a runner or for another target, and for a device for
        which the wheel has no libraries.
        """
        from harness.probe.build import PROBE_NAME
        from harness.runtimes.ort import EXECUTORCH_VERSION, OWN_BUILD, RUNNER, runner_files

        provisioner, built_for = target.provisioner, target.provisioned.target
        if provisioner.executorch_build is not None:
            files = runner_files(provisioner.executorch_build, built_for)
            return EngineProgram(self.title, OWN_BUILD, RUNNER, files)
        files = wheel_files(provisioner, built_for)
        return EngineProgram(self.title, EXECUTORCH_VERSION, PROBE_NAME, files)

    def cases(self, path: Path, options: ModelOptions) -> list[WholeFile]:
        """Return a case for each method that has contexts, or for the one named."""
        from harness.bench.executorch import methods_to_run, open_program
        from harness.models.artefact_sources import WholeFile

        options.require_expected(path)
        methods = methods_to_run(path) if options.graph is None else (options.graph,)
        programs = [open_program(path, method) for method in methods]
        wholes = [
            WholeFile.of(
                path,
                program.readable(),
                options if options.graph else replace(options, graph=program.method),
                [path],
                part=program.method if len(programs) > 1 else None,
            )
            for program in programs
        ]
        for program, whole in zip(programs, wholes, strict=True):
            program.tensor_files("inputs", whole.options.inputs)
            program.tensor_files("expected", whole.options.expected)
        return wholes

    def run(self, bench: Bench, workload: WholeFile) -> Observation:
        """Load and execute a method, with the expected outputs."""
        options = workload.options
        return bench.executorch(
            workload.path,
            method=options.graph or "forward",
            inputs=options.inputs,
            expected=options.expected,
            tolerance=options.tolerance,
            repeat=workload.rounds,
        )

    def plan_to_profile(self, bench: Bench, workload: WholeFile, observation: Observation) -> Plan:
        """Return a plan for its contexts, since ExecuTorch's wheel has no profiler."""
        from harness.models.source import schedule

        contexts = bench.contexts(*workload)
        return bench.context_plan(contexts, schedule(len(contexts), "sequential"))


def wheel_files(provisioner: Provisioner, target: str) -> dict[str, Path]:
    """Return the probe with ExecuTorch in it and the libraries it needs, by name."""
    from harness.probe.build import PROBE_NAME
    from harness.runtimes.ort import EXECUTORCH_LIBRARIES

    wheel = provisioner.catalog.executorch(target)
    root = wheel.path / "executorch"
    digests = (wheel.files[f"executorch/lib/{name}"].sha256 for name in EXECUTORCH_LIBRARIES)
    program = provisioner.probes.build_with_executorch(root, " ".join(digests))
    libraries = {name: root / "lib" / name for name in EXECUTORCH_LIBRARIES}
    return {PROBE_NAME: program, **libraries}
