"""A user's own ONNX model as ONNX Runtime loads it on a device: with EPContext nodes, or plain."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
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
    def tells_placement(self) -> bool:
        parts = (self.runtime.runtime.ort_version or "").split(".")
        return [int(part) if part.isdecimal() else 0 for part in parts[:2]] >= [1, 24]

    @property
    def wants_fallback(self) -> bool:
        """Whether the provider takes this backend only if nodes may go to ORT's own CPU provider.

        It does so with QNN's CPU backend, however many of the nodes that takes.
        """
        return posixpath.basename(self.backend) == BACKEND_LIBRARIES["cpu"]

    def provider(self, options: Mapping[str, str] | None = None) -> Provider:
        """The QNN provider on this device's backend; `options` are added to what it needs."""
        needed = {"backend_path": self.backend}
        if self.htp_arch is not None:
            needed |= compile_options(self.htp_arch)
        given = needed | dict(options or {})
        if self.plugin is None:
            return Provider("QNN", given, builtin=True)
        return Provider(options=given)

    def plan(
        self,
        steps: Iterable[Step],
        sessions: int,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
        *,
        causes: bool = True,
    ) -> Plan:
        """A plan that opens ORT, does these steps and lets go of `sessions` sessions and of ORT.

        `causes` as in `ort_env`: a plan whose times count goes without.
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
        """Creates a session on QNN, and fails if a single node went elsewhere.

        With `fallback` nodes may go elsewhere, which is only told.
        """
        chosen = provider or self.provider()
        allowed = fallback or self.wants_fallback
        created = ort_session(number, model, chosen, options=options, fallback=allowed)
        return created, ort_placement(number, whole=None if fallback else QNN_EP)

    @staticmethod
    def run(number: int, model: DeployedModel, *, repeat: int | Rounds = 1) -> Step:
        """Runs a session with the model's inputs and compares what comes out."""
        return ort_run(
            number,
            inputs=model.inputs,
            expected=model.expected,
            tolerance=model.tolerance,
            repeat=repeat,
        )


def ort_on_device(runtime: DeployedRuntime, backend: str, htp_arch: int | None) -> OrtOnDevice:
    """Where in a deployed runtime ORT's parts are.

    Raises ConfigError if it has no ORT, LibraryMissing if it has not that backend.
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
    """What steps of a verb put out, with a file of what each is told against.

    `sample` names the inputs that it comes of, where there are several sets.
    """

    verb: str
    results: Sequence[NamedShape]
    references: Sequence[Path]
    against: str
    sample: str = ""

    def kept(
        self, run_folder: Path, content: Callable[[int, int], bytes | None]
    ) -> list[KeptOutput]:
        """The outputs with their files; `content` gives that of one, by its number and its size."""
        made = []
        for at, (result, file) in enumerate(zip(self.results, self.references, strict=False)):
            size, own = file.stat().st_size, None
            found = content(at, size) if size <= MAX_BYTES else None
            if found is not None:
                digest = hashlib.sha256(found).hexdigest()[:16]
                own = run_folder / OUTPUTS / f"{digest}-{len(found)}.raw"
                keep_whole(own, found)
            made.append(KeptOutput(*result, None, None, own, file, self.against, "", self.sample))
        return made


def run_keeping(
    case: CaseSession, run: Callable[[Plan], Observation], plan: Plan, outputs: Sequence[ToKeep]
) -> Observation:
    """Runs a plan, and keeps the outputs where there is something to tell them against.

    Steps of their verb belong to each of them, in turn, as many to one as to another.
    """
    numbers = [at for at, one in enumerate(plan.steps) if one.verb == outputs[0].verb]
    each = len(numbers) // len(outputs)
    with case.scratch() if outputs[0].references else nullcontext("") as folder:
        steps = list(plan.steps)
        for place, number in enumerate(numbers):
            at = place // each
            names = range(len(outputs[at].references))
            saved = {f"save.{output}": f"{folder}/{at}.{output}.raw" for output in names}
            steps[number] = replace(steps[number], fields={**steps[number].fields, **saved})
        seen = run(replace(plan, steps=tuple(steps)))
        kept, done = list[KeptOutput](), seen.run.transcript.steps
        for at, one in enumerate(outputs):
            mine = numbers[at * each : (at + 1) * each]
            if any(step.ok or step.error == "mismatch" for step in done if step.step in mine):

                def fetch(output: int, size: int, at: int = at) -> bytes:
                    return case.fetch(f"{folder}/{at}.{output}.raw", max_bytes=size)

                kept += one.kept(case.run_folder, fetch)
        return seen.keeping(kept)


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
