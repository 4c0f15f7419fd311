"""Which files a case has on its device, and what they are called there (pure but for sizes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.contexts.contexts import Source
from harness.contexts.models import Model
from harness.contexts.session_plan import DeployedContext, DeployedModel
from harness.contexts.source import Context, ContextSource, Reference
from harness.probe.build import PROBE_NAME
from harness.runtimes.runtime import Runtime
from harness.store.deploy import Deployer
from harness.store.layout import FileSet
from harness.workbench.placement import PushedFile

_BINARY: Final = "context.bin"
_MODEL: Final = "model.onnx"


def context_set(deployer: Deployer, source: ContextSource, context: Context) -> FileSet:
    """A context's binary, inputs and expected outputs, to be put into a folder of their own."""
    return deployer.file_set(str(source), {_BINARY: context.path, **_beside(context)})


def model_set(deployer: Deployer, onnx: Path, reference: Reference) -> FileSet:
    """An ONNX file, its inputs and expected outputs, to be put into a folder of their own."""
    return deployer.file_set(onnx.stem, {_MODEL: onnx, **_beside(reference)})


def _beside(made: Context | Reference) -> dict[str, Path]:
    """Inputs and expected outputs, as they are called on a device."""
    found: dict[str, Path] = {}
    for one in (made, *made.others) if isinstance(made, Context) else (made,):
        prefix = _prefix(one) if isinstance(one, Context) else ""
        found |= dict(zip(_names(f"{prefix}input", one.inputs), one.inputs, strict=True))
        found |= dict(zip(_names(f"{prefix}expected", one.expected), one.expected, strict=True))
    return found


def _prefix(context: Context) -> str:
    return f"graph{context.graph}." if context.graph else ""


def deployed_model(model: Model, reference: Reference, folder: str) -> DeployedModel:
    """The model whose files lie in `folder` on a device."""
    return DeployedModel(
        file=f"{folder}/{_MODEL}",
        inputs=_paths(folder, "input", reference.inputs),
        expected=_paths(folder, "expected", reference.expected),
        tolerance=model.tolerance,
    )


def deployed_context(context: Context, folder: str) -> DeployedContext:
    """The context whose files lie in `folder` on a device."""
    return DeployedContext(
        context=context,
        binary=f"{folder}/{_BINARY}",
        inputs=_paths(folder, f"{_prefix(context)}input", context.inputs),
        expected=_paths(folder, f"{_prefix(context)}expected", context.expected),
        others=tuple(deployed_context(one, folder) for one in context.others),
    )


def pushed_files(
    runtime: Runtime,
    probe: Path,
    contexts: Mapping[Source, Context],
    models: Mapping[Model, tuple[Path, Reference]],
) -> list[PushedFile]:
    """All that a case needs on its device, for people; `models` are for ONNX Runtime."""
    files = [PushedFile("probe", PROBE_NAME, probe.stat().st_size)]
    origin = f"QNN {runtime.qnn_version}"
    if runtime.ort_version is not None:
        origin += f", ORT {runtime.ort_version}"
    files += [PushedFile(origin, file.name, file.size) for file in runtime.files]
    made: list[tuple[Source, Path, Context | Reference]] = [
        *((source, context.path, context) for source, context in contexts.items()),
        *((model, onnx, reference) for model, (onnx, reference) in models.items()),
    ]
    for source, main, beside in made:
        paths = [main, *_beside(beside).values()]
        files += [PushedFile(str(source), path.name, path.stat().st_size) for path in paths]
    return files


def _paths(folder: str, kind: str, paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in _names(kind, paths))


def _names(kind: str, paths: Sequence[Path]) -> list[str]:
    return [f"{kind}.{index}.raw" for index in range(len(paths))]
