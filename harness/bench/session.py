"""A user's own ONNX model as ONNX Runtime loads it on a device: with EPContext nodes, or plain."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.bench.kept_outputs import MAX_BYTES, KeptOutput
from harness.containers.artefact import Blob
from harness.containers.extract import piece_file
from harness.containers.open import open_artefact
from harness.core.axes import BACKEND_LIBRARIES
from harness.core.cache import cache_root
from harness.core.errors import ConfigError
from harness.core.names_inside import open_inside
from harness.core.verified_folder import valid_name
from harness.core.whole_file import keep_whole
from harness.models.compile import compile_options
from harness.models.context_file import ContextFile, Files
from harness.models.contexts import Source
from harness.models.models import Model
from harness.models.onnx_model import OnnxModel, OnnxSurface
from harness.models.source import GIVEN, ON_CPU, DeployedModel, Reference
from harness.models.tensor_files import TensorFiles
from harness.probe.ort_plan import (
    QNN_EP,
    Provider,
    ort_end,
    ort_env,
    ort_load,
    ort_placement,
    ort_register_ep,
    ort_run,
    ort_session,
    ort_session_free,
)
from harness.probe.plan import Plan, Rounds, Settings, Step
from harness.results.run_folder import OUTPUTS
from harness.runtimes.ort import PLUGIN, ort_library_of
from harness.runtimes.runtime import DeployedRuntime

if TYPE_CHECKING:
    from harness.bench.case_session import CaseSession, Observation


@dataclass(frozen=True)
class OrtOnDevice:
    """ORT, its QNN provider and a QNN backend on a device.

    `backend` is the path of the backend library; `htp_arch` is that of the device, None where
    the backend has none. `plugin` is None where ORT has the provider built in.
    """

    runtime: DeployedRuntime
    library: str
    plugin: str | None
    backend: str
    htp_arch: int | None

    @property
    def reports_placement(self) -> bool:
        parts = (self.runtime.runtime.ort_version or "").split(".")
        return [int(part) if part.isdecimal() else 0 for part in parts[:2]] >= [1, 24]

    @property
    def needs_fallback(self) -> bool:
        """Return whether the provider insists on CPU fallback, as it does for QNN's CPU backend."""
        return posixpath.basename(self.backend) == BACKEND_LIBRARIES["cpu"]

    def provider(self, options: Mapping[str, str] | None = None) -> Provider:
        """Return the QNN provider for this backend; `options` are added to the required ones."""
        needed = {"backend_path": self.backend}
        if self.htp_arch is not None:
            needed |= compile_options(self.htp_arch)
        merged = needed | dict(options or {})
        if self.plugin is None:
            return Provider("QNN", merged, builtin=True)
        return Provider(options=merged)

    def plan(
        self,
        steps: Iterable[Step],
        sessions: int,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
        *,
        causes: bool = True,
    ) -> Plan:
        """Return a plan that opens ORT, does these steps and frees `sessions` sessions and ORT.

        `causes` is as in `ort_env`; a plan that measures times does without.
        """
        register = () if self.plugin is None else (ort_register_ep(self.plugin),)
        return Plan(
            (
                ort_load(self.library),
                ort_env(causes=causes),
                *register,
                *steps,
                Step("cleanup"),
                *(ort_session_free(number) for number in range(sessions)),
                *(ort_end() if self.plugin else ort_end(None)),
            ),
            settings,
        )

    def session(
        self,
        number: int,
        model: str,
        *,
        options: Mapping[str, str] | None = None,
        provider: Provider | None = None,
        fallback: bool = False,
    ) -> tuple[Step, ...]:
        """Return steps that create a session on QNN and fail if any node is placed elsewhere.

        With `fallback` such nodes are only reported.
        """
        chosen = provider or self.provider()
        allowed = fallback or self.needs_fallback
        created = ort_session(number, model, chosen, options=options, fallback=allowed)
        return created, ort_placement(number, whole=None if fallback else QNN_EP)

    @staticmethod
    def run(number: int, model: DeployedModel, *, repeat: int | Rounds = 1) -> Step:
        """Return the step that runs a session with the model's inputs and compares the outputs."""
        return ort_run(
            number,
            inputs=model.inputs,
            expected=model.expected,
            tolerance=model.tolerance,
            repeat=repeat,
        )


def ort_on_device(runtime: DeployedRuntime, backend: str, htp_arch: int | None) -> OrtOnDevice:
    """Return the paths of ORT's parts in a deployed runtime.

    Raises ConfigError if it has no ORT, LibraryMissing if it lacks the backend.
    """
    names = {posixpath.basename(file.name) for file in runtime.runtime.files}
    return OrtOnDevice(
        runtime=runtime,
        library=runtime.library(ort_library_of(runtime.runtime)),
        plugin=runtime.library(PLUGIN) if PLUGIN in names else None,
        backend=runtime.library(backend),
        htp_arch=htp_arch,
    )


NamedShape = tuple[str, str, tuple[int, ...]]
"""Name, type and shape of an output."""


@dataclass(frozen=True)
class ToKeep:
    """The outputs of the steps of a verb, each with the file of its reference.

    `against` names the reference, `sample` the set of inputs where there are several.
    """

    verb: str
    results: Sequence[NamedShape]
    references: Sequence[Path]
    against: str
    sample: str = ""

    def save(
        self, run_folder: Path, content: Callable[[int, int], bytes | None]
    ) -> list[KeptOutput]:
        """Save the outputs in the run's folder; `content` returns one, given its index and size."""
        saved = []
        for index, (result, file) in enumerate(zip(self.results, self.references, strict=False)):
            size, path = file.stat().st_size, None
            data = content(index, size) if size <= MAX_BYTES else None
            if data is not None:
                digest = hashlib.sha256(data).hexdigest()[:16]
                path = run_folder / OUTPUTS / f"{digest}-{len(data)}.raw"
                keep_whole(path, data)
            saved.append(KeptOutput(*result, None, None, path, file, self.against, "", self.sample))
        return saved


def run_and_keep(
    case: CaseSession, run: Callable[[Plan], Observation], plan: Plan, outputs: Sequence[ToKeep]
) -> Observation:
    """Run a plan and keep the outputs that have a reference.

    The steps of the verb are shared out evenly, in order, among the sets of outputs.
    """
    numbers = [number for number, step in enumerate(plan.steps) if step.verb == outputs[0].verb]
    each = len(numbers) // len(outputs)
    with case.scratch() if outputs[0].references else nullcontext("") as folder:
        steps = list(plan.steps)
        for position, number in enumerate(numbers):
            index = position // each
            names = range(len(outputs[index].references))
            saved = {f"save.{output}": f"{folder}/{index}.{output}.raw" for output in names}
            steps[number] = replace(steps[number], fields={**steps[number].fields, **saved})
        observation = run(replace(plan, steps=tuple(steps)))
        kept_outputs, results = list[KeptOutput](), observation.run.transcript.steps
        for index, output_set in enumerate(outputs):
            mine = numbers[index * each : (index + 1) * each]
            if any(step.ok or step.error == "mismatch" for step in results if step.step in mine):

                def fetch(output: int, size: int, index: int = index) -> bytes:
                    return case.fetch(f"{folder}/{index}.{output}.raw", max_bytes=size)

                kept_outputs += output_set.save(case.run_folder, fetch)
        return observation.keeping(kept_outputs)


SESSION_OUTPUTS: Final = "session_outputs"
"""The measurement with the file name of each output in the run's folder of outputs."""

_MODEL: Final = "model.onnx"


@dataclass(frozen=True)
class SessionModel:
    """An .onnx file to create a session from.

    `sources` are its contexts or, for a model without EPContext nodes, what it is compiled from.
    `external_files` are the files that ONNX Runtime opens, by their paths relative to the model.
    `mixed`: some of its nodes may run on the CPU.
    """

    path: Path
    sources: tuple[Source, ...]
    surface: OnnxSurface
    external_files: Mapping[str, Path]
    mixed: bool

    @property
    def models(self) -> list[OnnxModel]:
        """The model with each set of its inputs; empty if it has EPContext nodes."""
        return [source for source in self.sources if isinstance(source, OnnxModel)]

    def files(self, inputs: Files, expected: Files) -> dict[str, Path]:
        """Return all files to deploy, by their names there. Raises ConfigError, InfraError.

        The model gets a folder of its own, because files beside it may have any name.
        """
        if self.models:
            return {
                f"{number}/expected.{index}.raw": file
                for number, model in enumerate(self.models)
                for index, file in enumerate(model.expected_files)
            }
        tensors = TensorFiles(cache_root())
        files = {f"model/{name}": path for name, path in self.external_files.items()}
        files[f"model/{_MODEL}"] = self.path
        if inputs is None:
            read = tensors.generated(self.surface.inputs, self.path)
        else:
            read = tensors.resolve("inputs", inputs, self.surface.inputs, self.path)
        files |= {f"input.{index}.raw": file for index, file in enumerate(read)}
        if expected is not None:
            outputs = self.surface.require_outputs(self.path)
            read = tensors.resolve("expected", expected, outputs, self.path)
            files |= {f"expected.{index}.raw": file for index, file in enumerate(read)}
        return files

    def deployed(
        self, known: Sequence[DeployedModel], folder: str, files: Iterable[str], tolerance: float
    ) -> list[DeployedModel]:
        """Return the model with the deployed `files` in `folder`, for each set of inputs (pure).

        `known` are the deployed models without EPContext nodes, which have inputs of their own.
        """
        names = sorted(files, key=lambda name: (len(name), name))

        def below(start: str) -> tuple[str, ...]:
            return tuple(f"{folder}/{name}" for name in names if name.startswith(start))

        if not known:
            file = f"{folder}/model/{_MODEL}"
            return [DeployedModel(file, below("input."), below("expected."), tolerance)]
        expected = [
            below(f"{index}/") or (model.expected if self.models[index].compared else ())
            for index, model in enumerate(known)
        ]
        return [
            DeployedModel(model.file, model.inputs, outputs, tolerance)
            for model, outputs in zip(known, expected, strict=True)
        ]

    def outputs_to_keep(
        self, files: Mapping[str, Path], reference: Callable[[Model], Reference]
    ) -> list[ToKeep]:
        """Return the outputs for each set of inputs, with their references.

        These are the expected outputs among `files`, the deployed files, else those of ONNX Runtime
        on the CPU, which `reference` returns.
        """
        expected = [file for name, file in files.items() if name.startswith("expected.")]
        return [
            ToKeep(
                "ort-run",
                self.surface.results,
                model.expected_files or reference(model).expected,
                GIVEN if model.expected_files else ON_CPU,
                model.sample,
            )
            for model in self.models
        ] or [ToKeep("ort-run", self.surface.results, expected, GIVEN)]

    def plan(self, ort: OrtOnDevice, deployed: Sequence[DeployedModel], rounds: Rounds) -> Plan:
        """Return a plan with one session, run twice if the outputs have no other reference."""
        steps = ort.session(0, deployed[0].file, fallback=self.mixed)
        each = rounds.shared(len(deployed))
        runs = [
            ort.run(0, model, repeat=part)
            for model in deployed
            for part in ((each,) if model.expected else each.halves())
        ]
        return ort.plan((*steps, *runs), sessions=1)


def open_session(
    path: Path,
    tolerance: float = 0.0,
    inputs: Files = None,
    expected: Files = None,
    fallback: bool = False,
) -> SessionModel:
    """Open a model for ONNX Runtime. Raises ConfigError for a file that it cannot load.

    `inputs` and `expected` are the tensor files of a plain model. With `fallback` nodes may run on
    the CPU.
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
    external_files = {side.relative_to(folder).as_posix(): side for side in sides}
    external_files |= {name: folder / name for name in surface.weight_files}
    for name in external_files:
        if not valid_name(name) or name == _MODEL:
            problem = f"the external file {name!r} has a name that is invalid on a device"
            raise ConfigError(problem, file=path)
        try:
            with open_inside(folder, name) as stream:
                size = os.fstat(stream.fileno()).st_size
        except OSError as error:
            problem = f"cannot open the external file {name!r} beside it: {error.strerror}"
            raise ConfigError(problem, file=path) from error
        side = Blob(folder / name, 0, size, name, root=folder)
        external_files[name] = piece_file(side, cache_root())
    contexts = [piece for piece in artefact.pieces if piece.kind == "context"]
    return SessionModel(
        path,
        _sources(path, [piece_file(piece, cache_root()) for piece in contexts]),
        surface,
        external_files,
        mixed=fallback or bool(artefact.facts["other_nodes"]),
    )


def _sources(path: Path, files: Sequence[Path]) -> tuple[ContextFile, ...]:
    several = len(files) > 1
    return tuple(
        ContextFile(file.absolute(), name=f"{path.name}#{index}" if several else path.name)
        for index, file in enumerate(files)
    )
