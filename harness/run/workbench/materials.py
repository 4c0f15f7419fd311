"""What a case has on its device: where that lies here, and its names there (pure but for sizes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from harness.contexts.compiler.models import Model
from harness.contexts.context.session_plan import DeployedContext, DeployedModel
from harness.contexts.context.source import Context, ContextSource, Reference
from harness.contexts.sources.contexts import Source
from harness.device.store.deploy import Deployer
from harness.device.store.layout import FileSet
from harness.libraries.runtimes.deployed import runtime_set
from harness.libraries.runtimes.runtime import Runtime
from harness.probe.build import PROBE_NAME

_BINARY: Final = "context.bin"
_MODEL: Final = "model.onnx"


class FileToPush(BaseModel, frozen=True):
    """A file that a case needs on its device; `size` in bytes, `origin` says where it is from."""

    name: str
    size: int
    origin: str


@dataclass(frozen=True)
class EngineProgram:
    """What an engine brings to a device: a program called `program`, and libraries beside it.

    `name` is that of the folder, for people; `version` is what records call it. One that `is_own`
    is a user's own build.
    """

    name: str
    version: str
    program: str
    files: Mapping[str, Path]
    is_own: bool

    def files_on(self, deployer: Deployer) -> FileSet:
        """The set that it is put there as."""
        return deployer.file_set(self.name, self.files, [self.program])


@dataclass(frozen=True)
class Materials:
    """All that a case has on its device, on this computer.

    `models` are for ONNX Runtime. `files` are those of a user's that an engine loads as they are;
    they are put there with the inputs that a test names for them.
    """

    runtime: Runtime
    probe: Path
    contexts: Mapping[Source, Context]
    models: Mapping[Model, tuple[Path, Reference]]
    program: EngineProgram | None
    files: Sequence[Path] = ()

    def sets(self, deployer: Deployer) -> list[FileSet]:
        """What is put on a device before a case begins."""
        found = [runtime_set(self.runtime), probe_set(deployer, self.probe)]
        found += [context_set(deployer, *made) for made in self.contexts.items()]
        found += [model_set(deployer, *made) for made in self.models.values()]
        return found if self.program is None else [*found, self.program.files_on(deployer)]

    def listed(self) -> list[FileToPush]:
        """All of it for people. Sizes are in bytes."""
        runtime = self.runtime
        origin = f"QNN {runtime.qnn_version}"
        if runtime.ort_version is not None:
            origin += f", ORT {runtime.ort_version}"
        found = [_listed("probe", PROBE_NAME, self.probe)]
        found += [
            FileToPush(name=file.name, size=file.size, origin=origin) for file in runtime.files
        ]
        made: list[tuple[Source, Path, Context | Reference]] = [
            *((source, context.path, context) for source, context in self.contexts.items()),
            *((model, onnx, reference) for model, (onnx, reference) in self.models.items()),
        ]
        for source, main, beside in made:
            paths = [main, *_beside(beside).values()]
            found += [_listed(str(source), path.name, path) for path in paths]
        if self.program is not None:
            of = f"ExecuTorch {self.program.version}"
            found += [_listed(of, name, path) for name, path in self.program.files.items()]
        return found + [_listed(path.name, path.name, path) for path in self.files]


def _listed(origin: str, name: str, path: Path) -> FileToPush:
    return FileToPush(name=name, size=path.stat().st_size, origin=origin)


def probe_set(deployer: Deployer, probe: Path) -> FileSet:
    """The probe, to be put into a folder of its own."""
    return deployer.file_set("probe", {PROBE_NAME: probe}, [PROBE_NAME])


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


def _paths(folder: str, kind: str, paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in _names(kind, paths))


def _names(kind: str, paths: Sequence[Path]) -> list[str]:
    return [f"{kind}.{index}.raw" for index in range(len(paths))]
