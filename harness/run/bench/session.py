"""A user's own ONNX model as ONNX Runtime loads it on a device: with EPContext nodes, or plain."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.contexts.compiler.models import Model
from harness.contexts.context.session_plan import DeployedModel
from harness.contexts.context.source import GIVEN, ON_CPU, Reference
from harness.contexts.sources.context_file import ContextFile, Files
from harness.contexts.sources.contexts import Source
from harness.contexts.sources.onnx_model import OnnxModel, OnnxSurface
from harness.contexts.sources.tensor_files import TensorFiles
from harness.ground.errors import ConfigError
from harness.ground.files.cache import cache_root
from harness.ground.files.names_inside import open_inside
from harness.ground.files.verified_folder import valid_name
from harness.libraries.containers.artefact import Blob
from harness.libraries.containers.extract import piece_file
from harness.libraries.containers.open import open_artefact
from harness.probe.plan import Plan, Rounds
from harness.run.bench.ort import OrtOnDevice
from harness.run.bench.saved_outputs import ToKeep, run_keeping

if TYPE_CHECKING:
    from harness.run.bench.case_session import CaseSession, Observation

SESSION_OUTPUTS: Final = "session_outputs"
"""The measurement that has the file of each output, by its name, in the run's folder of outputs."""

_MODEL: Final = "model.onnx"


@dataclass(frozen=True)
class SessionModel:
    """An .onnx that a session is made of.

    `sources` are its contexts, or for a model without EPContext nodes what it is compiled from.
    `beside` are the files that ONNX Runtime looks for, by their names as seen from the model.
    `mixed`: some of its nodes may run on the CPU.
    """

    path: Path
    sources: tuple[Source, ...]
    surface: OnnxSurface
    beside: Mapping[str, Path]
    mixed: bool

    @property
    def models(self) -> list[OnnxModel]:
        """The model, if it has no EPContext nodes, with each set of its inputs."""
        return [one for one in self.sources if isinstance(one, OnnxModel)]

    def files(self, inputs: Files, expected: Files) -> dict[str, Path]:
        """All that is put on the device, by names there. Raises ConfigError, InfraError.

        The model lies in a folder of its own: what lies beside it may be called anything.
        """
        if self.models:
            return {
                f"{number}/expected.{at}.raw": file
                for number, model in enumerate(self.models)
                for at, file in enumerate(model.wanted)
            }
        tensors = TensorFiles(cache_root())
        found = {f"model/{name}": path for name, path in self.beside.items()}
        found[f"model/{_MODEL}"] = self.path
        if inputs is None:
            read = tensors.generated(self.surface.inputs, self.path)
        else:
            read = tensors.given("inputs", inputs, self.surface.inputs, self.path)
        found |= {f"input.{at}.raw": file for at, file in enumerate(read)}
        if expected is not None:
            outputs = self.surface.require_outputs(self.path)
            read = tensors.given("expected", expected, outputs, self.path)
            found |= {f"expected.{at}.raw": file for at, file in enumerate(read)}
        return found

    def deployed(
        self, known: Sequence[DeployedModel], folder: str, files: Iterable[str], tolerance: float
    ) -> list[DeployedModel]:
        """The model with the files of `files` that lie in `folder`, for each set of inputs (pure).

        `known` are those of a model without EPContext nodes, made ready with their own inputs.
        """
        there = sorted(files, key=lambda name: (len(name), name))

        def below(start: str) -> tuple[str, ...]:
            return tuple(f"{folder}/{one}" for one in there if one.startswith(start))

        if not known:
            file = f"{folder}/model/{_MODEL}"
            return [DeployedModel(file, below("input."), below("expected."), tolerance)]
        expected = [
            below(f"{at}/") or (one.expected if self.models[at].compared else ())
            for at, one in enumerate(known)
        ]
        return [
            DeployedModel(one.file, one.inputs, told, tolerance)
            for one, told in zip(known, expected, strict=True)
        ]

    def plan(self, ort: OrtOnDevice, deployed: Sequence[DeployedModel], rounds: Rounds) -> Plan:
        """A session, executed twice if there is nothing else to compare the outputs with."""
        steps = ort.session(0, deployed[0].file, fallback=self.mixed)
        each = rounds.shared(len(deployed))
        runs = [
            ort.run(0, one, repeat=part)
            for one in deployed
            for part in ((each,) if one.expected else each.halves())
        ]
        return ort.plan((*steps, *runs), sessions=1)


def run_session(
    case: CaseSession,
    run: Callable[..., Observation],
    reference: Callable[[Model], Reference],
    made: SessionModel,
    plan: Plan,
    files: Mapping[str, Path],
    timeout_s: float,
) -> Observation:
    """Runs a plan of a session, and keeps its outputs where files tell what they should be.

    These are the expected ones of `files`, which are all that was put on the device, else those of
    ONNX Runtime on the CPU. `run` and `reference` are those of the bench.
    """
    wanted = [file for name, file in files.items() if name.startswith("expected.")]
    outputs = [
        ToKeep(
            "ort-run",
            made.surface.results,
            one.wanted or reference(one).expected,
            GIVEN if one.wanted else ON_CPU,
            one.sample,
        )
        for one in made.models
    ] or [ToKeep("ort-run", made.surface.results, wanted, GIVEN)]
    seen = run_keeping(case, partial(run, timeout_s=timeout_s), plan, outputs)
    names = {one.name: one.file.name for one in seen.kept if one.file is not None}
    case.notes.measurements |= {SESSION_OUTPUTS: names} if names else {}
    return seen


def open_session(
    path: Path,
    tolerance: float = 0.0,
    inputs: Files = None,
    expected: Files = None,
    fallback: bool = False,
) -> SessionModel:
    """What ONNX Runtime is to load. Raises ConfigError for a file that it cannot take.

    A plain model has its files of tensors with it: `inputs` and `expected`. With `fallback` the CPU
    may take nodes.
    """
    artefact = open_artefact(path)
    if artefact.kind == "onnx":
        models = OnnxModel.each(path.absolute(), tolerance, inputs=inputs, expected=expected)
        surface = OnnxSurface.of(path)
        if fallback:  # else QNN refuses, with the op, whatever has no fixed shape
            surface.require_outputs(path, field="--fallback")
        return SessionModel(path, models, surface, {}, mixed=fallback)
    if artefact.kind != "epcontext":
        problem = f"ONNX Runtime loads an .onnx, and this is: {artefact.kind}"
        raise ConfigError(problem, file=path, choices=[".onnx with EPContext nodes", "plain .onnx"])
    surface = OnnxSurface.of(path)
    folder = path.parent
    sides = [piece.path for piece in artefact.pieces if piece.path != artefact.path]
    beside = {one.relative_to(folder).as_posix(): one for one in sides}
    beside |= {name: folder / name for name in surface.beside}
    for name in beside:
        if not valid_name(name) or name == _MODEL:
            problem = f"the file {name!r} beside it cannot be called so on a device"
            raise ConfigError(problem, file=path)
        try:
            with open_inside(folder, name) as stream:
                size = os.fstat(stream.fileno()).st_size
        except OSError as error:
            problem = f"the file {name!r} is to lie beside it: {error.strerror}"
            raise ConfigError(problem, file=path) from error
        side = Blob(folder / name, 0, size, name, within=folder)
        beside[name] = piece_file(side, cache_root())
    contexts = [piece for piece in artefact.pieces if piece.kind == "context"]
    return SessionModel(
        path,
        _sources(path, [piece_file(piece, cache_root()) for piece in contexts]),
        surface,
        beside,
        mixed=fallback or bool(artefact.facts["other_nodes"]),
    )


def _sources(path: Path, files: Sequence[Path]) -> tuple[ContextFile, ...]:
    several = len(files) > 1
    return tuple(
        ContextFile(file.absolute(), name=f"{path.name}#{at}" if several else path.name)
        for at, file in enumerate(files)
    )
