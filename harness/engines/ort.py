"""ONNX Runtime with its QNN execution provider."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.engine import Engine, require_no_graph

if TYPE_CHECKING:
    from harness.bench.bench import Bench
    from harness.bench.case_session import Observation
    from harness.models.artefact_sources import ModelOptions, WholeFile


class OnnxRuntime(Engine):
    """ONNX Runtime, which compiles models on the device, or loads what was compiled."""

    name = "ort"
    title = "ONNX Runtime"
    kinds = ("onnx", "epcontext")
    method = "session"
    option = "ort"
    takes_models = True
    has_compilers = True
    test = "test_session"

    def driver(self, file_names: Collection[str]) -> str:
        """Return the driver for a provider that is built in, or is a plug-in of ONNX Runtime."""
        from harness.runtimes.ort import PLUGIN

        return "ort-plugin" if PLUGIN in file_names else "ort-builtin"

    def cases(self, path: Path, options: ModelOptions) -> list[WholeFile]:
        """Return one case: a session of the model."""
        from harness.bench.session import open_session
        from harness.models.artefact_sources import WholeFile, own_folder
        from harness.models.onnx_model import require_alike

        require_no_graph(self, path, options)
        inputs, expected = (
            own_folder(files, path.name) for files in (options.inputs, options.expected)
        )
        model = open_session(path, options.tolerance, inputs, expected, options.fallback)
        if not model.models:
            options.require_expected(path)
        else:
            require_alike(path, options.closeness.original)
        files = [path, *model.external_files.values()] if not model.models else ()
        return [WholeFile.of(path, model.sources, options, files)]

    def run(self, bench: Bench, workload: WholeFile) -> Observation:
        """Create a session of the model on QNN, with the expected outputs."""
        options = workload.options
        return bench.session(
            workload.path,
            inputs=options.inputs,
            expected=options.expected,
            tolerance=options.tolerance,
            repeat=workload.rounds,
            fallback=options.fallback,
        )
