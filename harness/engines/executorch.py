"""ExecuTorch on a device: running a .pte, and finding the component that a failure is due to."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from zlib import crc32

from harness.bench.bench import Bench
from harness.bench.case_session import CaseSession, Observation
from harness.bench.kept_outputs import NamedShape, ToKeep
from harness.bench.prepared_devices import PreparedPlacement
from harness.bench.provisioner import Provisioner, program_set
from harness.containers.artefact import Artefact, FileBytes, Piece, Tensor
from harness.containers.extract import piece_file
from harness.containers.graph_partitions import figures_of
from harness.containers.manifest import RunPlan
from harness.containers.open import open_artefact
from harness.containers.pte import method_nodes, method_tensors
from harness.core.engine import Engine, EngineProgram, FileRun
from harness.core.errors import ConfigError
from harness.core.matrix_axes import DEFAULT_POWER
from harness.core.state_folders import cache_root
from harness.core.versions import QnnVersion
from harness.diagnosis.runner_log import (
    STARTED,
    OutputLine,
    is_delegate_line,
    is_logged_line,
    process_of,
    runner_transcript,
)
from harness.diagnosis.verdict import Verdict
from harness.engines.executorch_files import (
    LIBRARIES,
    OWN_BUILD,
    RUNNER,
    TAKES,
    VERSION,
    executorch_folder,
    runner_files,
)
from harness.models.artefact_sources import ModelOptions, WholeFile
from harness.models.context_file import ContextFile, Files
from harness.models.contexts import require_contexts
from harness.models.session_plan import GIVEN, DeployedContext, schedule
from harness.models.tensor_files import TensorFiles
from harness.probe.build import PROBE_NAME
from harness.probe.plan import ONCE, Plan, Rounds, Step, rounds_of, texts
from harness.probe.plan_runner import ProbeRun, alive_at_deadline
from harness.probe.transcript import StepResult
from harness.runtimes.preflight import PreflightInput
from harness.runtimes.preflight_findings import Finding, finding
from harness.runtimes.runtime import Driver
from harness.transport.device import Transport
from harness.transport.shell import Completed, ScriptTimeout


class ExecuTorch(Engine):
    """ExecuTorch, which brings a program of its own to the device."""

    name = "executorch"
    title = "ExecuTorch"
    kinds = ("pte",)
    backends = ("htp",)
    method = "executorch"
    option = "executorch"
    test = "test_program"

    def driver(self, file_names: Collection[str]) -> Driver:
        return "program"

    def fitting_qnn(
        self, build: Path | None, made_by: Callable[[], Sequence[str]]
    ) -> tuple[str, str] | None:
        """Return the versions that the wheel takes, or for a build one that made a context."""
        if build is None:
            return str(TAKES), f"{self.title} {VERSION} needs this version"
        newest = max(made_by(), key=QnnVersion.parse, default=None)
        reason = "this version made the contexts; use --qnn for another one"
        return None if newest is None else (newest, reason)

    def findings(self, subject: PreflightInput, build: Path | None) -> Iterator[Finding]:
        """Yield a finding for a QNN whose HTP the wheel's ExecuTorch cannot configure."""
        runtime = subject.backend_version
        if build is None and subject.backend == "htp" and runtime and runtime not in TAKES:
            names = [file.name for file in subject.of_kind("backend-htp")[:1]]
            facts: dict[str, Any] = {"version": VERSION, "accepted": TAKES, "runtime": runtime}
            yield finding("executorch-device", *names, **facts)

    def program(self, prepared: PreparedPlacement) -> EngineProgram:
        """Return the runner of a user's build, else the probe with the wheel's ExecuTorch in it.

        Raises ConfigError for a build without a runner or for another target, and for a device for
        which the wheel has no libraries.
        """
        provisioner, built_for = prepared.provisioner, prepared.provisioned.target
        if (build := provisioner.builds.get(self.name)) is not None:
            files = runner_files(build, built_for)
            return EngineProgram(self.title, OWN_BUILD, RUNNER, files)
        files = wheel_files(provisioner, built_for)
        return EngineProgram(self.title, VERSION, PROBE_NAME, files)

    def cases(self, path: Path, options: ModelOptions) -> list[WholeFile]:
        """Return a case for each method that has contexts, or for the one named."""
        options.require_expected(path)
        methods: Sequence[str] = ("forward",) if options.graph is None else (options.graph,)
        if options.graph is None:
            methods = _with_contexts(open_artefact(path)) or methods
        programs = [open_program(path, method) for method in methods]
        wholes = [
            WholeFile.of(
                path,
                program.sources(),
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

    def run(self, bench: Bench, file: FileRun) -> Observation:
        pte = open_program(file.path, file.graph or "forward")
        case, prepared = bench.case, bench.case.prepared
        runner, deployer = self.program(prepared), prepared.provisioned.deployer
        is_own = runner.program == RUNNER
        inputs = pte.tensor_files("inputs", file.inputs, generate=is_own)
        expected = pte.tensor_files("expected", file.expected)
        names = {f"input_{index}.raw": path for index, path in enumerate(inputs)}
        names |= {f"expected_{index}.raw": path for index, path in enumerate(expected)}
        folder = deployer.deploy_files(pte.path.name, {"program.pte": pte.path, **names})
        remote = [f"{folder}/{name}" for name in names]
        sides = remote[: len(inputs)], remote[len(inputs) :]
        plan = pte.plan(
            f"{folder}/program.pte",
            *sides,
            tolerance=file.tolerance,
            repeat=file.rounds,
            mode=performance_mode(case.placement.power),
        )
        path = f"{deployer.deploy_sets([program_set(deployer, runner)])[0]}/{runner.program}"
        result = run_with(case, path, pte, plan, expected, file.timeout_s, is_own=is_own)
        with FileBytes(pte.path) as data:
            places = figures_of(*method_nodes(data, pte.method))
        bench.measure(executorch=runner.version, **result.measurements, **places)
        bench.note_graphs(result, [pte.path.name])
        with contextlib.suppress(ConfigError):  # ExecuTorch has reported unreadable contexts
            contexts = list(require_contexts(prepared.compile_contexts(pte.sources())).values())
            case.notes.makers += [context.made_by for context in contexts if context.made_by]
        step, failed = result.run.transcript.first_failure, result.verdict.outcome in FAILED
        # there are no references for outputs of single contexts
        is_wrong = step is not None and step.error == "mismatch"
        holds_contexts = all(piece.kind == "context" for piece in pte.contexts)
        if failed and not is_wrong and pte.contexts and holds_contexts:
            executions = list(case.notes.executions)
            replay = replay_contexts(bench, pte)
            case.notes.executions = executions  # only those of the program itself
            bench.measure(replay=replay)
            facts = ", ".join(f"{key} {text}" for key, text in replay.items() if text is not None)
            bench.conclude(f"its contexts without ExecuTorch: {facts}")
        case.notes.set_verdict(result.verdict)
        return result

    def manual(self, model: str, plan: RunPlan) -> str:
        return f"""With ExecuTorch's runner alone, in a folder with the content of this archive:

  mkdir outputs
  qnn_executor_runner --model_path {shlex.quote(model)} --output_folder_path outputs"""

    def plan_to_profile(self, bench: Bench, workload: WholeFile, observation: Observation) -> Plan:
        """Return a plan for its contexts, since ExecuTorch's wheel has no profiler."""
        contexts = bench.contexts(*workload)
        return bench.context_plan(contexts, schedule(len(contexts), "sequential"))


def wheel_files(provisioner: Provisioner, target: str) -> dict[str, Path]:
    """Return the probe with ExecuTorch in it and the libraries it needs, by name."""
    wheel = executorch_folder(provisioner.catalog.wheels, target)
    root = wheel.path / "executorch"
    digests = (wheel.files[f"executorch/lib/{name}"].sha256 for name in LIBRARIES)
    program = provisioner.probes.build_with_executorch(root, " ".join(digests))
    return {PROBE_NAME: program, **{name: root / "lib" / name for name in LIBRARIES}}


FAILED: Final = ("failed", "crashed", "hung")
"""The outcomes that a replay may explain."""


@dataclass(frozen=True)
class Program:
    """A method of a .pte, with the contexts of its delegates in the order of loading.

    `inputs` and `outputs` are None if one of them has a type that files cannot hold. `number` is
    the index of the method, `results` are names, types and shapes of the outputs.
    """

    path: Path
    method: str
    contexts: tuple[Piece, ...]
    inputs: tuple[Tensor, ...] | None = None
    outputs: tuple[Tensor, ...] | None = None
    number: int = 0
    results: tuple[NamedShape, ...] = ()

    def sources(self) -> list[ContextFile]:
        """Return its contexts as files, leaving out other pieces. Raises InfraError."""
        return [
            ContextFile(piece_file(piece, cache_root()).absolute(), name=f"{self.path.name}#{i}")
            for i, piece in enumerate(self.contexts)
            if piece.kind == "context"
        ]

    def tensor_files(
        self, kind: Literal["inputs", "expected"], files: Files, *, generate: bool = False
    ) -> tuple[Path, ...]:
        """Return raw files for a user's tensors, given as a folder or as files, raw or .npy.

        With `generate` they are made up if none are given. Raises ConfigError if they do not fit.
        """
        tensors = self.inputs if kind == "inputs" else self.outputs
        if tensors is None and (generate or files is not None):
            problem = "some have a type that cannot be stored in a file"
            raise ConfigError(problem, file=self.path, field=kind)
        store = TensorFiles(cache_root())
        if files is not None:
            return store.resolve(kind, files, tensors or (), self.path)
        return store.generated(tensors or (), self.path) if generate else ()

    def outputs_to_keep(self, expected: Sequence[Path]) -> ToKeep:
        """Return its outputs with their references, if the types are known."""
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
        mode: int | None = None,
    ) -> Plan:
        """Return a plan that loads and executes it, with a step for the device and each context.

        The last step executes it once more, so that the outputs can always be compared. `mode` is
        the number of a performance mode.
        """
        common = {"tolerance": f"{tolerance:.17g}"}
        files = {f"input.{number}": path for number, path in enumerate(inputs)}
        files |= {f"expect.{number}": path for number, path in enumerate(expected)}
        numbers = range(len(self.contexts))
        return Plan(
            (
                Step("executorch-program", {"file": program, "method": self.method}),
                Step("executorch-device", texts(performance_mode=mode)),
                *(Step("executorch-context", {"context": str(number)}) for number in numbers),
                Step("executorch-run", common | rounds_of(repeat).fields() | files),
                Step("executorch-run", common | ONCE.fields() | files),
                Step("cleanup"),
                Step("executorch-free"),
            )
        )


_PERFORMANCE_MODES: Final = (
    DEFAULT_POWER,
    "sustained_high_performance",
    "burst",
    "high_performance",
    "power_saver",
    "low_power_saver",
    "high_power_saver",
    "low_balanced",
    "balanced",
)
"""The power profiles in the order of ExecuTorch's numbers for them."""


def performance_mode(profile: str | None) -> int | None:
    """Return ExecuTorch's number for a power profile. Raises ConfigError if it has none."""
    if profile is not None and profile not in _PERFORMANCE_MODES:
        problem = f"ExecuTorch has no performance mode {profile!r}"
        raise ConfigError(problem, field="--power", choices=_PERFORMANCE_MODES)
    return None if profile is None else _PERFORMANCE_MODES.index(profile)


def open_program(path: Path, method: str) -> Program:
    """Open a method of a .pte. Raises ConfigError for another file or a missing method."""
    artefact = open_artefact(path)
    if artefact.kind != "pte":
        raise ConfigError(f"is of kind {artefact.kind}; ExecuTorch runs a .pte", file=path)
    methods = artefact.facts["methods"]
    if method not in methods:
        problem = f"has no method {method!r}; name one with --graph or method="
        choices = _with_contexts(artefact) or methods
        raise ConfigError(problem, file=path, choices=choices)
    pieces = {}
    for piece in artefact.pieces:
        for origin in (piece.origin, *piece.facts.get("also", ())):
            owner, _, number = origin.rpartition("/")
            if owner == method:
                pieces[int(number)] = piece
    with FileBytes(path) as data:
        inputs, outputs = method_tensors(data, method)
    contexts = tuple(pieces[number] for number in sorted(pieces))
    sides, number = (inputs, outputs), methods.index(method)
    known = [tuple(tensor for tensor in side if tensor is not None) for side in sides]
    results = tuple((tensor.name, tensor.data_type, tensor.shape or ()) for tensor in known[1])
    input_tensors, output_tensors = (
        tensors if len(tensors) == len(side) else None
        for tensors, side in zip(known, sides, strict=True)
    )
    return Program(path, method, contexts, input_tensors, output_tensors, number, results)


def _with_contexts(artefact: Artefact) -> Sequence[str]:
    pieces = artefact.pieces
    origins = [each for piece in pieces for each in (piece.origin, *piece.facts.get("also", ()))]
    having = {origin.rpartition("/")[0] for origin in origins}
    return [method for method in artefact.facts.get("methods", ()) if method in having]


def replay_contexts(bench: Bench, program: Program) -> dict[str, object]:
    """Run a program's contexts without ExecuTorch: all as it loads them, then the failing one.

    The result has the `outcome` of all, the number and the signature of the `context` that fails,
    and its outcome `alone`.
    """

    def run(contexts: Sequence[DeployedContext]) -> Verdict:
        plan = bench.context_plan(contexts, schedule(len(contexts), "resident"))
        return bench.attempt(plan).verdict

    try:
        deployed = bench.contexts(*program.sources())
    except ConfigError as refusal:
        return {"outcome": "unreadable", "context": None, "alone": None, "error": str(refusal)}
    together = run(deployed)
    error = together.error if together.outcome in FAILED else None
    context = None if error is None else error.context
    alone = None if context is None else run([deployed[context]]).outcome
    signature = None if error is None else error.signature
    return {"outcome": together.outcome, "context": context, "alone": alone, "error": signature}


_INFERENCES: Final = 2  # outputs are compared with each other
_NOT_STARTED: Final = ("CANNOT LINK EXECUTABLE", "error while loading shared libraries")
_LOOK_S: Final = 30.0
_MOST_LINES: Final = 200_000
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class RunnerCall:
    """The arguments of the runner; all paths are on the device, `folder` is writable."""

    runner: str
    program: str
    inputs: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]
    method: int = 0
    mode: int | None = None

    @property
    def outputs(self) -> str:
        return f"{self.folder}/outputs"

    def input_list(self) -> bytes:
        """Return one line for each inference; empty if the program has no inputs."""
        return f"{' '.join(self.inputs)}\n".encode() * _INFERENCES if self.inputs else b""

    def script(self) -> str:
        """Return shell text that prints its process id and the time, then runs the runner (pure).

        All output goes to one stream, because two streams have no common order.
        """
        folder = self.runner.rpartition("/")[0]
        paths = dict(self.environment)
        for name, between in (("LD_LIBRARY_PATH", ":"), ("ADSP_LIBRARY_PATH", ";")):
            paths[name] = between.join(filter(None, (folder, paths.get(name))))
        exports = "".join(f"export {name}={shlex.quote(text)};" for name, text in paths.items())
        words = [self.runner, "--model_path", self.program, "--output_folder_path", self.outputs]
        if self.inputs:
            words += ["--input_list_path", f"{self.folder}/input_list.txt"]
        if self.method:
            words += ["--method_index", str(self.method)]
        if self.mode is not None:
            words += ["--htp_performance_mode", str(self.mode)]
        return (
            f"cd {shlex.quote(self.folder)}&&mkdir outputs&&cat >input_list.txt||exit 97;{exports}"
            f'read -r up rest </proc/uptime;echo "{STARTED} $$ $up";exec {shlex.join(words)} 2>&1'
        )


class _LineReader:
    """Splits the output of two streams into lines with their times of arrival."""

    def __init__(self) -> None:
        self.heard: list[OutputLine] = []
        self.raw = bytearray()
        self._rest = [b"", b""]
        self._started = time.monotonic()

    def callback(self, stream: int) -> Callable[[bytes], None]:
        def receive(data: bytes) -> None:
            self.raw += data
            t_us = int((time.monotonic() - self._started) * 1e6)
            *lines, self._rest[stream] = (self._rest[stream] + data).split(b"\n")
            self._add(lines, t_us)

        return receive

    def close(self) -> None:
        self._add(list(filter(None, self._rest)), int((time.monotonic() - self._started) * 1e6))

    def _add(self, lines: Sequence[bytes], t_us: int) -> None:
        if len(self.heard) < _MOST_LINES:
            texts = (line.decode("utf-8", "replace").rstrip("\r")[:4000] for line in lines)
            self.heard += [OutputLine(text, t_us) for text in texts]


def call_runner(
    device: Transport, call: RunnerCall, plan: Plan, *, first: str, timeout_s: float
) -> ProbeRun:
    """Run a plan with the runner instead of the probe.

    `first` is shell text that may refuse the device. Raises ConfigError for a build with missing
    libraries; otherwise like `run_plan`.
    """
    lines, started = _LineReader(), time.monotonic()
    completed: Completed | None = None
    timed_out = False
    try:
        completed = device.shell(
            first + call.script(),
            stdin=call.input_list(),
            timeout_s=timeout_s,
            on_stdout=lines.callback(0),
            on_stderr=lines.callback(1),
            max_output_bytes=_MOST_BYTES,
            doing=f"run {RUNNER}",
            collect=False,
        )
    except ScriptTimeout as error:
        completed = error.completed
        partial_transcript = runner_transcript(plan, lines.heard, None)
        if completed is None:
            due_s = timeout_s * 3 / 4  # connecting and starting take no longer than the rest
            timed_out = alive_at_deadline(
                partial_transcript,
                error.processes,
                due_s,
                late_bytes=error.late_bytes,
                read_to_end=error.read_to_end,
            )
            if not timed_out:
                raise
    lines.close()
    texts = (line.text for line in lines.heard)
    message = next((text for text in texts if any(t in text for t in _NOT_STARTED)), None)
    if message is not None:
        raise ConfigError(f"{RUNNER} does not start: {message}", field="qnn_executorch")
    heard = lines.heard
    process = process_of(heard)
    if process is not None and not any(is_delegate_line(line.text) for line in heard):
        heard = _with_logcat(device, process, heard)
    exit_code = completed.exit_code if completed else None
    transcript = runner_transcript(plan, heard, exit_code)
    failed = transcript.finished is not None and transcript.first_failure is not None
    return ProbeRun(
        plan=plan,
        transcript=transcript,
        # its own exit status after a failed call has no meaning
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
    is_own: bool,
) -> Observation:
    """Run a program's plan with the runner at the path `runner` on the device.

    That of ExecuTorch's wheel prints events like a probe. A user's own (`is_own`) prints none and
    compares nothing. Raises like `CaseSession.run`, for an own one like `call_runner`.
    """
    if not is_own:
        run_it = partial(case.run, timeout_s=timeout_s, probe=runner)
        return case.run_and_keep(run_it, plan, [program.outputs_to_keep(expected)])
    fields = next(step for step in plan.steps if step.verb == "executorch-run").fields
    inputs = tuple(path for key, path in fields.items() if key.startswith("input."))
    file, environment = plan.steps[0].fields["file"], case.runtime.environment
    content = list[bytes | None]()
    with case.scratch() as folder:
        mode = performance_mode(case.placement.power)
        call = RunnerCall(runner, file, inputs, folder, environment, program.number, mode)
        way, first = case.device.transport, case.device_check
        run = call_runner(way, call, plan, first=first, timeout_s=timeout_s)
        if run.transcript.done and program.outputs and inputs:
            listed = way.shell(f"ls {shlex.quote(call.outputs)}", timeout_s=_LOOK_S).stdout
            names = listed.decode("utf-8", "replace").split()
            outputs = [
                [
                    case.fetch(f"{call.outputs}/{name}", max_bytes=tensor.size)
                    if (name := f"output_{index}_{number}.raw") in names
                    else None
                    for number, tensor in enumerate(program.outputs)
                ]
                for index in range(_INFERENCES)
            ]
            references = [path.read_bytes() for path in expected]
            content, tolerance = outputs[0], float(fields["tolerance"])
            run = with_outputs(run, outputs, program.outputs, references, tolerance)
    result = case.judge_run(run)
    to_keep = program.outputs_to_keep(expected if content else ())
    kept = to_keep.save(case.run_folder, lambda index, _: content[index])
    return replace(result, kept=kept)


def _with_logcat(device: Transport, process: int, heard: Sequence[OutputLine]) -> list[OutputLine]:
    command = f"logcat -d -v brief --pid={process} 2>/dev/null"
    answer = device.shell(command, timeout_s=_LOOK_S, max_output_bytes=8 << 20)
    start = next(index for index, line in enumerate(heard) if line.text.startswith(STARTED))
    logged = answer.stdout.decode("utf-8", "replace").splitlines()[:_MOST_LINES]
    lines = [OutputLine(text, heard[start].t_us) for text in logged if is_logged_line(text)]
    return [*heard[: start + 1], *lines, *heard[start + 1 :]]


def with_outputs(
    run: ProbeRun,
    outputs: Sequence[Sequence[bytes | None]],
    tensors: Sequence[Tensor],
    expected: Sequence[bytes],
    tolerance: float,
) -> ProbeRun:
    """Return the run with the outputs of each inference: hashes and comparisons (pure)."""
    steps = list(run.transcript.steps)
    runs = [index for index, step in enumerate(steps) if step.verb == "executorch-run" and step.ok]
    for index, contents in zip(runs, outputs, strict=False):
        steps[index] = _compared(steps[index], contents, tensors, expected, tolerance)
    finished = run.transcript.finished
    if finished is not None:
        finished = replace(finished, failed=sum(step.failed for step in steps))
    return replace(run, transcript=replace(run.transcript, steps=steps, finished=finished))


def _compared(
    step: StepResult,
    contents: Sequence[bytes | None],
    tensors: Sequence[Tensor],
    expected: Sequence[bytes],
    tolerance: float,
) -> StepResult:
    digests, figures = [], []
    for i, (content, tensor) in enumerate(zip(contents, tensors, strict=True)):
        if content is None or len(content) != tensor.size:
            wrote = "nothing" if content is None else f"{len(content)} bytes"
            return replace(step, error="mismatch", message=f"it wrote {wrote} for {tensor}")
        digests.append(crc32(content))
        if expected:
            figures.append({"index": i, **_difference(content, expected[i], tensor, tolerance)})
    wrong = next((figure for figure in figures if figure["beyond"]), None)
    compared = replace(step, data={"digests": digests, "outputs": figures})
    if wrong is None:
        return compared
    problem = f"output {wrong['index']} has {wrong['beyond']} of {wrong['elements']} elements"
    difference = f"more than {tolerance:g} from" if tolerance else "that are not"
    return replace(compared, error="mismatch", message=f"{problem} {difference} what is expected")


def _difference(content: bytes, expected: bytes, tensor: Tensor, limit: float) -> dict[str, Any]:
    import numpy as np

    name = "uint8" if tensor.data_type == "bool8" else tensor.data_type
    got, reference = (np.frombuffer(data, name).astype(np.float64) for data in (content, expected))
    with np.errstate(invalid="ignore"):
        apart = np.abs(got - reference)
    # NaN equals nothing but NaN
    apart[np.isnan(got) & np.isnan(reference)] = 0
    beyond = int(np.count_nonzero(~(apart <= limit)))
    most = float(np.nanmax(apart, initial=0.0))
    return {"elements": len(got), "max_abs": most, "beyond": beyond}
