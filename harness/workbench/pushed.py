"""Which files a case has on its device, and what they are called there (pure but for sizes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.contexts.compile import Context, Reference
from harness.contexts.models import ModelSpec
from harness.contexts.session_plan import DeployedContext, DeployedModel
from harness.probe.build import PROBE_NAME
from harness.runtimes.deploy import Deployer, DeployFile
from harness.runtimes.device_store import FileSet
from harness.runtimes.runtime import Runtime
from harness.workbench.placement import PushedFile

_BINARY: Final = "context.bin"
_MODEL: Final = "model.onnx"


def context_set(deployer: Deployer, model: ModelSpec, context: Context) -> FileSet:
    """A context's binary, inputs and expected outputs, to be put into a folder of their own."""
    return deployer.file_set(str(model), [DeployFile(context.path, _BINARY), *_beside(context)])


def model_set(deployer: Deployer, onnx: Path, reference: Reference) -> FileSet:
    """An ONNX file, its inputs and expected outputs, to be put into a folder of their own."""
    return deployer.file_set(onnx.stem, [DeployFile(onnx, _MODEL), *_beside(reference)])


def _beside(made: Context | Reference) -> list[DeployFile]:
    """Inputs and expected outputs, as they are called on a device."""
    paths = (*made.inputs, *made.expected)
    names = _names("input", made.inputs) + _names("expected", made.expected)
    return [DeployFile(path, name) for path, name in zip(paths, names, strict=True)]


def deployed_model(model: ModelSpec, reference: Reference, folder: str) -> DeployedModel:
    """The model whose files lie in `folder` on a device."""
    return DeployedModel(
        file=f"{folder}/{_MODEL}",
        inputs=tuple(f"{folder}/{name}" for name in _names("input", reference.inputs)),
        expected=tuple(f"{folder}/{name}" for name in _names("expected", reference.expected)),
        tolerance=model.tolerance,
    )


def deployed_context(context: Context, folder: str) -> DeployedContext:
    """The context whose files lie in `folder` on a device."""
    return DeployedContext(
        context=context,
        binary=f"{folder}/{_BINARY}",
        inputs=tuple(f"{folder}/{name}" for name in _names("input", context.inputs)),
        expected=tuple(f"{folder}/{name}" for name in _names("expected", context.expected)),
    )


def pushed_files(
    runtime: Runtime,
    probe: Path,
    contexts: Mapping[ModelSpec, Context],
    models: Mapping[ModelSpec, tuple[Path, Reference]],
) -> list[PushedFile]:
    """All that a case needs on its device, for people; `models` are for ONNX Runtime."""
    files = [PushedFile("probe", PROBE_NAME, probe.stat().st_size)]
    origin = f"QNN {runtime.qnn_version}"
    if runtime.ort_version is not None:
        origin += f", ORT {runtime.ort_version}"
    files += [PushedFile(origin, file.name, file.size) for file in runtime.files]
    for model, context in contexts.items():
        paths = [context.path, *context.inputs, *context.expected]
        files += [PushedFile(str(model), path.name, path.stat().st_size) for path in paths]
    for model, (onnx, reference) in models.items():
        paths = [onnx, *reference.inputs, *reference.expected]
        files += [PushedFile(str(model), path.name, path.stat().st_size) for path in paths]
    return files


def _names(kind: str, paths: Sequence[Path]) -> list[str]:
    return [f"{kind}.{index}.raw" for index in range(len(paths))]
