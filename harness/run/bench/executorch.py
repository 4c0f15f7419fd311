"""ExecuTorch on a device: a .pte as its user runs it, and which part of it a failure is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.contexts.context.metadata import Tensor
from harness.contexts.context.session_plan import DeployedContext
from harness.contexts.context.source import GIVEN
from harness.contexts.sources.context_file import ContextFile, Files
from harness.contexts.sources.tensor_files import TensorFiles, lying_files
from harness.ground.errors import ConfigError, InternalError
from harness.ground.files.cache import cache_root
from harness.libraries.containers.artefact import Artefact, Piece
from harness.libraries.containers.extract import piece_file
from harness.libraries.containers.file_bytes import FileBytes
from harness.libraries.containers.graph_nodes import figures_of
from harness.libraries.containers.open import open_artefact
from harness.libraries.containers.pte import MethodTensor, method_nodes, method_tensors
from harness.probe.plan import ONCE, Plan, Rounds, Step, rounds_of
from harness.probe.plan_runner import ProbeRun
from harness.run.bench.saved_outputs import NamedShape, ToKeep
from harness.verdict.failure.verdict import Verdict

ProgramFault = Literal["executorch", "versions", "undecided", "context", "room", "library"]
"""What a failure is of, once its contexts ran without ExecuTorch on the same libraries.

context: one fails there alone, too. room: one fails there only beside the others. library: no
context is concerned, since the backend or its device does not open. Each may be another failure
than with ExecuTorch. If all run there, on inputs of
their own, that does not yet say what is at fault. executorch: a call of its own refused to load the
program, and no call of QNN failed. versions: it is not for this QNN. Else undecided.
"""

_WORDS: Final[dict[ProgramFault, str]] = {
    "executorch": "ExecuTorch: it did not load the program, no call of QNN failed, and on the same "
    "libraries its contexts load and run without it",
    "versions": "ExecuTorch and QNN together: this ExecuTorch is not for this QNN, on which its "
    "contexts load and run without it",
    "undecided": "what is done with ExecuTorch only: without it, on the same libraries and inputs "
    "of their own, its contexts load and run; that does not tell whether ExecuTorch fails, its "
    "configuration of the device, or what the program does besides",
    "context": "context {context}",
    "room": "what all contexts need together",
    "library": "the library",
}
_WITHOUT: Final[Mapping[ProgramFault, str]] = {
    "context": "context {context} fails all alone, too",
    "room": "context {context} fails beside the others, and not alone",
    "library": "it fails, too, and not with a context",
}
FAILED: Final = ("failed", "crashed", "hung")
"""How a program ends of which a replay can tell more."""


@dataclass(frozen=True)
class Program:
    """A method of a .pte: the contexts of its delegates, in the order in which they are loaded.

    `inputs` and `outputs` are those that files can hold, None where one's type has no name.
    `number` is that of the method, `results` are names, types and shapes of the outputs.
    """

    path: Path
    method: str
    contexts: tuple[Piece, ...]
    inputs: tuple[Tensor, ...] | None = None
    outputs: tuple[Tensor, ...] | None = None
    number: int = 0
    results: tuple[NamedShape, ...] = ()

    @property
    def holds_contexts(self) -> bool:
        return all(piece.kind == "context" for piece in self.contexts)

    def places(self) -> dict[str, object]:
        """What the method does where: its delegates and portable kernels, as a record has it."""
        with FileBytes(self.path) as data:
            return figures_of(*method_nodes(data, self.method))

    def sources(self) -> list[ContextFile]:
        """Its contexts as files of their own. Raises ConfigError if one is none, InfraError."""
        for number, piece in enumerate(self.contexts):
            if piece.kind != "context":
                problem = f"delegate {number} ({piece.origin}) holds no context but: {piece.kind}"
                raise ConfigError(problem, file=self.path)
        return self.readable()

    def readable(self) -> list[ContextFile]:
        """Its contexts as files of their own, without pieces that are none. Raises InfraError."""
        return [
            ContextFile(piece_file(piece, cache_root()).absolute(), name=f"{self.path.name}#{at}")
            for at, piece in enumerate(self.contexts)
            if piece.kind == "context"
        ]

    def given(
        self, what: Literal["inputs", "expected"], files: Files, *, make: bool = False
    ) -> tuple[Path, ...]:
        """Raw files of what a user gave for its tensors: a folder or files, raw or .npy.

        With `make` some are made where none were given. Raises ConfigError for what does not fit.
        """
        tensors = self.inputs if what == "inputs" else self.outputs
        if files is None:
            if make and tensors is None:
                raise ConfigError(
                    "their types are not known: give files", file=self.path, field=what
                )
            return TensorFiles(cache_root()).generated(tensors or (), self.path) if make else ()
        if tensors is not None:
            return TensorFiles(cache_root()).given(what, files, tensors, self.path)
        if isinstance(files, Path):
            files = lying_files(what, files, self.path, cache_root())
        if any(one.suffix == ".npy" for one in files):
            problem = "not all of these are tensors of a known type: give raw files, no .npy"
            raise ConfigError(problem, file=self.path, field=what)
        return files

    def told_against(self, expected: Sequence[Path]) -> ToKeep:
        """Its outputs and what they should be, where their types are known."""
        known = expected if len(self.results) == len(expected) else ()
        return ToKeep("executorch-run", self.results, known, GIVEN)

    def plan(
        self,
        program: str,
        inputs: Sequence[str],
        expected: Sequence[str],
        *,
        tolerance: float,
        repeat: int | Rounds,
    ) -> Plan:
        """Loads it on a device, a step for the device and for each context, and executes it.

        It is executed once more than `repeat` says, in a step of its own, so that there is always
        something to compare its outputs with.
        """
        told = {"tolerance": f"{tolerance:.17g}"}
        files = {f"input.{number}": path for number, path in enumerate(inputs)}
        files |= {f"expect.{number}": path for number, path in enumerate(expected)}
        numbers = range(len(self.contexts))
        return Plan(
            (
                Step("executorch-program", {"file": program, "method": self.method}),
                Step("executorch-device"),
                *(Step("executorch-context", {"context": str(number)}) for number in numbers),
                Step("executorch-run", told | rounds_of(repeat).fields() | files),
                Step("executorch-run", told | ONCE.fields() | files),
                Step("cleanup"),
                Step("executorch-free"),
            )
        )


def open_program(path: Path, method: str) -> Program:
    """A method of a .pte. Raises ConfigError for another file, and a method that it has not."""
    artefact = open_artefact(path)
    if artefact.kind != "pte":
        raise ConfigError(f"ExecuTorch runs a .pte, and this is: {artefact.kind}", file=path)
    methods = artefact.facts["methods"]
    if method not in methods:
        problem = f"it has no method {method!r}; --graph, or method=, names one"
        choices = _with_contexts(artefact) or methods
        raise ConfigError(problem, file=path, choices=choices)
    found = {}
    for piece in artefact.pieces:
        for origin in (piece.origin, *piece.facts.get("also", ())):
            of, _, number = origin.rpartition("/")
            if of == method:
                found[int(number)] = piece
    with FileBytes(path) as data:
        inputs, outputs = method_tensors(data, method)
    contexts = tuple(found[number] for number in sorted(found))
    tensors = _named("input", inputs), _named("output", outputs)
    known = [one for one in outputs if one is not None]
    results = [(f"output_{at}", one.data_type, one.shape) for at, one in enumerate(known)]
    return Program(path, method, contexts, *tensors, methods.index(method), tuple(results))


def methods_to_run(path: Path) -> Sequence[str]:
    """What of a .pte is run where nobody says: each method with contexts, else `forward`.

    Raises ConfigError for a file that cannot be read.
    """
    artefact = open_artefact(path)
    return _with_contexts(artefact) or ("forward",)


def _with_contexts(artefact: Artefact) -> Sequence[str]:
    origins = [
        origin for one in artefact.pieces for origin in (one.origin, *one.facts.get("also", ()))
    ]
    having = {origin.rpartition("/")[0] for origin in origins}
    return [method for method in artefact.facts.get("methods", ()) if method in having]


def _named(kind: str, tensors: Sequence[MethodTensor | None]) -> tuple[Tensor, ...] | None:
    """Tensors called by their number: a program has no names for them."""
    known = [one for one in tensors if one is not None]
    if len(known) < len(tensors):
        return None
    return tuple(
        Tensor(f"{kind}_{at}", one.size, one.data_type, one.shape) for at, one in enumerate(known)
    )


@dataclass(frozen=True)
class Replay:
    """What came of a program's contexts without ExecuTorch.

    `context` is the one that failed, `error` the signature of that, or why it cannot be read.
    `otherwise` is what failed there if that is another failure than with ExecuTorch.
    """

    fault: ProgramFault
    context: int | None
    error: str | None
    otherwise: str | None = None

    def figures(self) -> dict[str, object]:
        """As it stands in the measurements of a record."""
        return {"fault": self.fault, "context": self.context, "error": self.error}

    def __str__(self) -> str:
        of, without = _WORDS[self.fault], _WITHOUT.get(self.fault)
        text = f"the failure is of {of}"
        if without is not None and self.otherwise is not None:
            text = f"without ExecuTorch {without}, but otherwise: {self.otherwise}"
        elif without is not None:
            text = f"{text}: without ExecuTorch {without}"
        return text.format(context=self.context)


def replayed(program: Verdict, together: Verdict, alone: Verdict | None) -> Replay:
    """What the failure of a program is of (pure).

    `program` is how it ended with ExecuTorch. `together` is how its contexts ended, loaded in one
    process as ExecuTorch loads them. `alone` is how the context that failed there ended in a
    process of its own.
    """
    error = together.error
    signature = None if error is None else error.signature
    if together.outcome not in FAILED:
        return Replay(_only_with_executorch(program), None, signature)
    context = None if error is None else error.context
    if context is None:
        return Replay("library", None, signature, _otherwise(program, together))
    if alone is not None and alone.outcome in FAILED:
        return Replay("context", context, signature, _otherwise(program, alone))
    return Replay("room", context, signature, _otherwise(program, together))


def _otherwise(program: Verdict, without: Verdict) -> str | None:
    """What failed without ExecuTorch, if it is not what failed with it.

    Of what crashed or hung within ExecuTorch nobody knows the call of QNN.
    """
    first, second = program.error, without.error
    if program.outcome == without.outcome:
        if without.outcome != "failed" or first is None or second is None:
            return None
        if (first.api, first.code) == (second.api, second.code):
            return None
    return f"{without.outcome} {'' if second is None else second.call}".strip()


def can_be_replayed(program: Program, run: ProbeRun, verdict: Verdict) -> bool:
    """Whether its contexts alone may tell more of a failure.

    Not of outputs that are wrong: the program ran, and what its contexts give alone is not known.
    """
    step = run.transcript.first_failure
    differs = step is not None and step.error == "mismatch"
    failed = verdict.outcome in FAILED and not differs
    return failed and bool(program.contexts) and program.holds_contexts


def replay_of(
    program: Program,
    verdict: Verdict,
    contexts: Callable[..., list[DeployedContext]],
    run: Callable[[Sequence[DeployedContext]], Verdict],
) -> Replay:
    """A program's contexts without ExecuTorch, loaded as it does, and the failing one alone.

    `contexts` puts sources on the device, `run` loads and executes contexts there.
    """
    sources = program.sources()
    try:
        found = contexts(*sources)
    except ConfigError:
        return _unreadable(sources, contexts)
    together = run(found)
    failed = None if together.error is None else together.error.context
    return replayed(verdict, together, None if failed is None else run([found[failed]]))


def _unreadable(
    sources: Sequence[ContextFile], contexts: Callable[..., list[DeployedContext]]
) -> Replay:
    """The first of these whose metadata cannot be read, either."""
    for number, source in enumerate(sources):
        try:
            contexts(source)
        except ConfigError as error:
            return Replay("context", number, str(error.problem))
    raise InternalError("each context can be read alone, and not all of them")


def _only_with_executorch(program: Verdict) -> ProgramFault:
    error = program.error
    if error is not None and error.diagnosis and error.diagnosis.id == "executorch-version":
        return "versions"
    refused = program.outcome == "failed" and error is not None and bool(error.code)
    loading = error is not None and (error.api or "").startswith("Module::load")
    return "executorch" if refused and loading else "undecided"
