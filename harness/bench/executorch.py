"""ExecuTorch on a device: a .pte as its user runs it, and which part of it a failure is of."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from zlib import crc32

from harness.bench.session import NamedShape, ToKeep, run_keeping
from harness.containers.artefact import Artefact, FileBytes, Piece
from harness.containers.extract import piece_file
from harness.containers.graph_nodes import figures_of
from harness.containers.open import open_artefact
from harness.containers.pte import MethodTensor, method_nodes, method_tensors
from harness.core.cache import cache_root
from harness.core.errors import ConfigError, InternalError
from harness.diagnosis.runner_log import (
    STARTED,
    Heard,
    is_delegate_line,
    is_logged_line,
    process_of,
    runner_transcript,
)
from harness.diagnosis.verdict import Verdict
from harness.models.context_file import ContextFile, Files
from harness.models.metadata import Tensor
from harness.models.source import GIVEN, DeployedContext
from harness.models.tensor_files import TensorFiles, lying_files
from harness.probe.plan import ONCE, Plan, Rounds, Step, rounds_of
from harness.probe.plan_runner import ProbeRun, alive_at_deadline
from harness.probe.transcript import StepResult
from harness.runtimes.ort import RUNNER
from harness.transport.shell import Completed, ScriptTimeout

if TYPE_CHECKING:
    from harness.bench.case_session import CaseSession, Observation
    from harness.transport.device import Transport


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


_INFERENCES: Final = 2  # so that outputs can be compared with each other
_NOT_STARTED: Final = ("CANNOT LINK EXECUTABLE", "error while loading shared libraries")
_LOOK_S: Final = 30.0
_MOST_LINES: Final = 200_000
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class RunnerCall:
    """What the runner is called with; all paths are on the device, `folder` is one to write in."""

    runner: str
    program: str
    inputs: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    method: int = 0

    @property
    def outputs(self) -> str:
        return f"{self.folder}/outputs"

    def input_list(self) -> bytes:
        """One line for each inference; none where the program takes nothing."""
        return f"{' '.join(self.inputs)}\n".encode() * _INFERENCES if self.inputs else b""

    def script(self) -> str:
        """Shell text that becomes the runner, and says before that who and when it is (pure).

        All on one stream: two have no order, and its first lines would come before that.
        """
        own = self.runner.rpartition("/")[0]
        paths = dict(self.environment)
        for name, between in (("LD_LIBRARY_PATH", ":"), ("ADSP_LIBRARY_PATH", ";")):
            paths[name] = between.join(filter(None, (own, paths.get(name))))
        exports = "".join(f"export {name}={shlex.quote(text)};" for name, text in paths.items())
        words = [self.runner, "--model_path", self.program, "--output_folder_path", self.outputs]
        if self.inputs:
            words += ["--input_list_path", f"{self.folder}/input_list.txt"]
        if self.method:
            words += ["--method_index", str(self.method)]
        return (
            f"cd {shlex.quote(self.folder)}&&mkdir outputs&&cat >input_list.txt||exit 97;{exports}"
            f'read -r up rest </proc/uptime;echo "{STARTED} $$ $up";exec {shlex.join(words)} 2>&1'
        )


class _Lines:
    """Cuts what comes from two streams into lines, with the times at which they came."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.raw = bytearray()
        self._rest = [b"", b""]
        self._began = time.monotonic()

    def taker(self, stream: int) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            self.raw += data
            t_us = int((time.monotonic() - self._began) * 1e6)
            *lines, self._rest[stream] = (self._rest[stream] + data).split(b"\n")
            self._add(lines, t_us)

        return take

    def close(self) -> None:
        self._add([one for one in self._rest if one], int((time.monotonic() - self._began) * 1e6))

    def _add(self, lines: Sequence[bytes], t_us: int) -> None:
        if len(self.heard) < _MOST_LINES:
            texts = (one.decode("utf-8", "replace").rstrip("\r")[:4000] for one in lines)
            self.heard += [Heard(text, t_us) for text in texts]


def call_runner(
    device: Transport, call: RunnerCall, plan: Plan, *, first: str, timeout_s: float
) -> ProbeRun:
    """Runs it in the place of a probe that had this plan, and says how that went.

    `first` is shell text that may refuse the device. Raises ConfigError for a build whose libraries
    are not complete; else as `run_plan`.
    """
    lines, started = _Lines(), time.monotonic()
    completed: Completed | None = None
    timed_out = False
    try:
        completed = device.shell(
            first + call.script(),
            stdin=call.input_list(),
            timeout_s=timeout_s,
            on_stdout=lines.taker(0),
            on_stderr=lines.taker(1),
            max_output_bytes=_MOST_BYTES,
            doing=f"run {RUNNER}",
            collect=False,
        )
    except ScriptTimeout as error:
        completed = error.completed
        seen = runner_transcript(plan, lines.heard, None)
        if completed is None:
            due_s = timeout_s * 3 / 4  # what comes before its start takes no longer
            timed_out = alive_at_deadline(
                seen,
                error.found,
                due_s,
                late_bytes=error.late_bytes,
                heard_out=error.heard_out,
            )
            if not timed_out:
                raise
    lines.close()
    said = next((one.text for one in lines.heard if any(t in one.text for t in _NOT_STARTED)), None)
    if said is not None:
        raise ConfigError(f"the {RUNNER} given does not start: {said}", field="--executorch")
    heard = lines.heard
    process = process_of(heard)
    if process is not None and not any(is_delegate_line(one.text) for one in heard):
        heard = _with_logcat(device, process, heard)
    exit_code = completed.exit_code if completed else None
    transcript = runner_transcript(plan, heard, exit_code)
    failed = transcript.finished is not None and transcript.first_failure is not None
    return ProbeRun(
        plan=plan,
        transcript=transcript,
        # how it ends itself once a status was not Ok tells nothing more
        exit_code=1 if failed else exit_code,
        signal=None if failed or completed is None else completed.signal,
        timed_out=timed_out,
        truncated=completed is not None and completed.truncated,
        raw_events=b"",
        stderr=bytes(lines.raw),
        duration_s=time.monotonic() - started,
    )


def run_with(
    case: CaseSession,
    runner: str,
    program: Program,
    plan: Plan,
    expected: Sequence[Path],
    timeout_s: float,
    *,
    own: bool,
) -> Observation:
    """Runs a program's plan with a runner, whose path on the device is `runner`.

    ExecuTorch's wheel speaks as a probe does. The user's `own` one prints no events and compares
    nothing. As `CaseSession.run`, and with `own` as `call_runner`.
    """
    if not own:
        run_it = partial(case.run, timeout_s=timeout_s, probe=runner)
        return run_keeping(case, run_it, plan, [program.told_against(expected)])
    fields = next(step for step in plan.steps if step.verb == "executorch-run").fields
    inputs = tuple(path for key, path in fields.items() if key.startswith("input."))
    file, environment = plan.steps[0].fields["file"], case.runtime.environment
    content = list[bytes | None]()
    with case.scratch() as folder:
        call = RunnerCall(runner, file, inputs, folder, environment, program.number)
        way, first = case.device.transport, case.same_device
        run = call_runner(way, call, plan, first=first, timeout_s=timeout_s)
        if run.transcript.done and program.outputs and inputs:
            listed = way.shell(f"ls {shlex.quote(call.outputs)}", timeout_s=_LOOK_S).stdout
            there = listed.decode("utf-8", "replace").split()
            found = [
                [
                    case.fetch(f"{call.outputs}/{name}", max_bytes=tensor.size)
                    if (name := f"output_{at}_{number}.raw") in there
                    else None
                    for number, tensor in enumerate(program.outputs)
                ]
                for at in range(_INFERENCES)
            ]
            wanted = [path.read_bytes() for path in expected]
            content = found[0]
            run = with_outputs(run, found, program.outputs, wanted, float(fields["tolerance"]))
    seen = case.judged(run)
    outputs = program.told_against(expected if content else ())
    return seen.keeping(outputs.kept(case.run_folder, lambda at, _: content[at]))


def _with_logcat(device: Transport, process: int, heard: Sequence[Heard]) -> list[Heard]:
    asked = f"logcat -d -v brief --pid={process} 2>/dev/null"
    answer = device.shell(asked, timeout_s=_LOOK_S, max_output_bytes=8 << 20)
    start = next(at for at, one in enumerate(heard) if one.text.startswith(STARTED))
    logged = answer.stdout.decode("utf-8", "replace").splitlines()[:_MOST_LINES]
    lines = [Heard(text, heard[start].t_us) for text in logged if is_logged_line(text)]
    return [*heard[: start + 1], *lines, *heard[start + 1 :]]


def with_outputs(
    run: ProbeRun,
    outputs: Sequence[Sequence[bytes | None]],
    tensors: Sequence[Tensor],
    expected: Sequence[bytes],
    tolerance: float,
) -> ProbeRun:
    """The run with what came out of each inference: hashes, and how it compares (pure)."""
    steps = list(run.transcript.steps)
    runs = [at for at, step in enumerate(steps) if step.verb == "executorch-run" and step.ok]
    for at, found in zip(runs, outputs, strict=False):
        steps[at] = _compared(steps[at], found, tensors, expected, tolerance)
    finished = run.transcript.finished
    if finished is not None:
        finished = replace(finished, failed=sum(step.failed for step in steps))
    return replace(run, transcript=replace(run.transcript, steps=steps, finished=finished))


def _compared(
    step: StepResult,
    found: Sequence[bytes | None],
    tensors: Sequence[Tensor],
    expected: Sequence[bytes],
    tolerance: float,
) -> StepResult:
    digests, figures = [], []
    for at, (content, tensor) in enumerate(zip(found, tensors, strict=True)):
        if content is None or len(content) != tensor.size:
            wrote = "nothing" if content is None else f"{len(content)} bytes"
            problem = f"it wrote {wrote} for {tensor}"
            return replace(step, error="mismatch", message=problem)
        digests.append(crc32(content))
        if expected:
            figures.append({"index": at, **_difference(content, expected[at], tensor, tolerance)})
    wrong = next((one for one in figures if one["beyond"]), None)
    told = replace(step, data={"digests": digests, "outputs": figures})
    if wrong is None:
        return told
    problem = f"output {wrong['index']} has {wrong['beyond']} of {wrong['elements']} elements"
    how = f"more than {tolerance:g} from" if tolerance else "that are not"
    return replace(told, error="mismatch", message=f"{problem} {how} what is expected")


def _difference(content: bytes, expected: bytes, tensor: Tensor, within: float) -> dict[str, Any]:
    import numpy as np

    name = "uint8" if tensor.data_type == "bool8" else tensor.data_type
    got, wanted = (np.frombuffer(one, name).astype(np.float64) for one in (content, expected))
    with np.errstate(invalid="ignore"):
        apart = np.abs(got - wanted)
    # nothing is equal to what is no number, but for another such
    apart[np.isnan(got) & np.isnan(wanted)] = 0
    beyond = int(np.count_nonzero(~(apart <= within)))
    most = float(np.nanmax(apart, initial=0.0))
    return {"elements": len(got), "max_abs": most, "beyond": beyond}
