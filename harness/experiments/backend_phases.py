"""A model on a backend by phases: open, assign nodes, load, execute, compare."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from harness.bench.bench import Bench
from harness.bench.case_session import NotPassed, TargetFailure
from harness.core.outgoing_text import counted
from harness.diagnosis.diagnosis import is_unrelated
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.experiments.accuracy import CLOSENESS, Accuracy, arithmetic, compare, judge_accuracy
from harness.models.builtin_models import Model
from harness.models.contexts import SourceList
from harness.models.session_plan import schedule, within_session
from harness.probe.ort_plan import QNN_EP, ort_placement, ort_run, ort_session
from harness.probe.plan import Settings, context_free, context_load, execute
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Check, held, undecided

Phase = Literal["init", "op_support", "load", "execute", "accuracy"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
"""init: library, backend, device. op_support: the supported nodes. load: a graph ready to run."""

_PHASE_OF: Final[Mapping[str, Phase]] = {
    "ort-placement": "op_support",
    "ort-session": "load",
    "context-load": "load",
    "ort-run": "execute",
    "execute": "execute",
}
# An error of the lab or the harness says nothing about the target.
_NO_VERDICT: Final = ("unsupported", "error")
# ORT's message about nodes on the CPU, and messages before it that show another reason; glibc and
# Android have their own for a library that cannot be opened.
_FALLBACK: Final = re.compile(r"fallback to CPU EP has been explicitly disabled")
_NOT_SET_UP: Final = re.compile(
    r"SetupBackend failed|GetCapability\(\).* failed|cannot open shared|dlopen failed: "
)
# The backend was asked about a node and refused it.
_REJECTED: Final = re.compile(
    r"backendValidateOpConfig\(\) failed for node .{0,300}? of type `(\w{1,80})` "
    r"with error code (\d{1,10})"
)
_NOT_SELECTED: Final = re.compile(r"was not selected by that EP")
# Operators with weights; other nodes of a quantised model may have float32 on both sides.
_WEIGHTED: Final = ("Conv", "Gemm", "MatMul")
_WEIGHTED_BY_QNN: Final = ("Conv2d", "DepthWiseConv2d", "FullyConnected", "MatMul")
_MOST_OPERATORS: Final = 64
_MOST_CHARS: Final = 80
_MOST_LINES: Final = 20


@dataclass(frozen=True)
class Refusal:
    """A kind of model that a backend refuses.

    `must`: accepting it is wrong, since its outputs are undefined. Otherwise it is unsupported.
    """

    backend: str
    data_type: str
    must: bool
    source: str


REFUSALS: Final = (
    Refusal(
        "gpu",
        "uint8",
        must=True,
        source="quantised models do not run on the GPU backend (microsoft/onnxruntime#24004)",
    ),
    Refusal(
        "cpu",
        "uint8",
        must=False,
        source="the QNN provider: `Data type 2 is not supported for Conv operator in CPU backend`",
    ),
)


@dataclass(frozen=True)
class Progress:
    """The phases that a model passed on a backend.

    `refused` is the phase in which it was refused, None if it ran to the end; `verdict` is that of
    the process. `operators` counts the nodes of each operator on QNN and elsewhere; it is empty if
    ORT does not report them. `composed` is false for a context binary, all of whose nodes the
    compiler has accepted. `rejected` has the codes with which the backend refused nodes, by QNN's
    operator.
    """

    refused: Phase | None
    verdict: Verdict
    operators: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    composed: bool = True
    rejected: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def record(self) -> dict[str, object]:
        """Return its entries in a record's measurements."""
        on_qnn = sum(nodes["qnn"] for nodes in self.operators.values())
        total = sum(nodes["qnn"] + nodes["elsewhere"] for nodes in self.operators.values())
        figures: dict[str, object] = {"refused_at": self.refused}
        if total:
            figures |= {"operators": self.operators, "nodes": total, "nodes_on_qnn": on_qnn}
        if self.rejected:
            figures["rejected_operators"] = self.rejected
        if self.verdict.error is not None:
            figures["refusal"] = self.verdict.error.model_dump(mode="json")
        return figures


def progress(transcript: Transcript, verdict: Verdict) -> Progress:
    """Return the phases that a process passed which made a graph and ran it."""
    failed = transcript.first_failure or transcript.last_begun
    refused: Phase | None = None
    if verdict.outcome != "passed":
        refused = _PHASE_OF.get(failed.verb, "init") if failed else "init"
    operators = operators_of(transcript.steps)
    rejected = rejected_operators(transcript.steps)
    sessions = [step for step in transcript.steps if step.verb == "ort-session"]
    logged = (line for step in sessions for line in step.logs if line.level == "error")
    messages = list(dict.fromkeys(line.text.strip() for line in logged))
    if refused == "op_support" and verdict.error is not None and messages and not rejected:
        # Unsupported nodes are no error for ORT: the backend itself failed.
        if not any(nodes["qnn"] for nodes in operators.values()):
            refused = "init"
        message = "\n".join([*messages[:_MOST_LINES], verdict.error.message])
        verdict = replace(verdict, error=_reworded(verdict.error, message))
    composed = not any(step.verb.startswith("context-") for step in transcript.steps)
    return Progress(refused, verdict, operators, composed, rejected)


def rejected_operators(steps: Sequence[StepResult]) -> dict[str, list[int]]:
    """Return the codes with which nodes were refused in sessions, by QNN's operator."""
    rejected: dict[str, list[int]] = {}
    for step in steps:
        for line in step.logs if step.verb == "ort-session" else ():
            match = _REJECTED.search(line.text)
            if match and (match[1] in rejected or len(rejected) < _MOST_OPERATORS):
                codes = rejected.setdefault(match[1], [])
                if int(match[2]) not in codes:
                    codes.append(int(match[2]))
    return rejected


def operators_of(steps: Sequence[StepResult]) -> dict[str, dict[str, int]]:
    """Count nodes by operator and place, ignoring malformed reports of the placement."""
    operators: dict[str, dict[str, int]] = {}
    for step in steps:
        if step.verb != "ort-placement":
            continue
        for part in _objects(step.data.get("placement")):
            place = "qnn" if part.get("ep") == QNN_EP else "elsewhere"
            for entry in _objects(part.get("operator_nodes")):
                operator, nodes = entry.get("operator"), entry.get("nodes")
                if not isinstance(operator, str) or type(nodes) is not int or nodes < 0:
                    continue
                name = operator[:_MOST_CHARS]
                if name in operators or len(operators) < _MOST_OPERATORS:
                    operators.setdefault(name, {"qnn": 0, "elsewhere": 0})[place] += nodes
    return operators


def expected_refusal(backend: str, data_type: str) -> Refusal | None:
    """Return the known refusal of a kind of model by a backend, None if there is none."""
    return next(
        (each for each in REFUSALS if (each.backend, each.data_type) == (backend, data_type)), None
    )


def judge_progress(result: Progress, refusal: Refusal | None) -> tuple[list[Check], Verdict]:
    """Return a check for each phase but the last, and the verdict of the case.

    If the model must be refused, that is the only check besides `init`, and the refusal passes. A
    refused model that the backend need not support is `unsupported`.
    """
    position = PHASES.index(result.refused) if result.refused else len(PHASES)
    if refusal is not None and refusal.must:
        return _judge_refusal(result, refusal, position)
    verdict = result.verdict
    if refusal is not None and result.refused == "op_support" and verdict.error is not None:
        message = f"{_why(result)}; {refusal.source}"
        verdict = Verdict("unsupported", None, _reworded(verdict.error, message))
    checks: list[Check] = []
    for index, phase in enumerate(PHASES[:-1]):
        if phase == "op_support" and not result.composed:
            continue
        if index > position:
            checks.append(undecided(phase, f"refused at {result.refused}"))
        elif index == position and verdict.outcome in _NO_VERDICT:
            checks.append(undecided(phase, _first_line(verdict)))
        elif index == position:
            checks.append(_refused(phase, verdict))
        elif phase == "op_support" and not result.operators:
            checks.append(undecided(phase, "this ORT does not report where nodes ran"))
        else:
            checks.append(held(phase, True, _phase_reason(phase, result)))
    return checks, verdict


def _judge_refusal(
    result: Progress, refusal: Refusal, position: int
) -> tuple[list[Check], Verdict]:
    name = f"refuses_{refusal.data_type}"
    verdict = result.verdict
    if result.refused == "init":
        reason = _first_line(verdict)
        checks = [_refused("init", verdict), undecided(name, "init fails for every model")]
        if verdict.outcome in _NO_VERDICT:
            checks[0] = undecided("init", reason)
        return checks, verdict
    opened = held("init", True, _phase_reason("init", result))
    if verdict.outcome == "error":
        return [opened, undecided(name, _first_line(verdict))], verdict
    if verdict.outcome in ("crashed", "hung"):
        problem = f"{verdict.outcome} at {result.refused} instead of refusing the model"
        return [opened, held(name, False, problem)], verdict
    if position >= PHASES.index("execute"):
        problem = (
            "it ran" if result.refused is None else f"it was loaded, but failed at {result.refused}"
        )
        checks = [opened, held(name, False, f"{problem}; {refusal.source}")]
        return checks, _broken(checks, verdict)
    accepted = _computed(result)
    if accepted:
        checks = [opened, held(name, False, f"it accepted {accepted}; {refusal.source}")]
        return checks, _broken(checks, verdict)
    if result.refused == "load" and not _says_what_it_refused(result):
        reason = "no session was created, perhaps not because of the model"
        return [opened, undecided(name, f"{reason}: {_first_line(verdict)}")], verdict
    return [opened, held(name, True, f"at {result.refused}: {_why(result)}")], Verdict("passed")


def _why(result: Progress) -> str:
    """Return why it was refused: by nodes, else by operators, else the process's error."""
    rejected = (f"{'/'.join(map(str, n))} for {name}" for name, n in result.rejected.items())
    return _not_taken(result) or ", ".join(rejected) or _first_line(result.verdict)


def _says_what_it_refused(result: Progress) -> bool:
    """Return whether a session was refused by QNN, or for nodes that would run on the CPU.

    If ORT changed the layout of nodes for QNN, which then refuses them, ORT calls the graph
    invalid. Other reasons, such as versions that do not match, would refuse any model.
    """
    error = result.verdict.error
    if error is None or is_unrelated(error):
        return False
    if _NOT_SELECTED.search(error.message):
        return any(name in result.rejected for name in _WEIGHTED_BY_QNN)
    is_fallback = _FALLBACK.search(error.message) and not _NOT_SET_UP.search(error.message)
    return error.code is not None or bool(is_fallback)


def _computed(result: Progress) -> str:
    """Return the nodes with weights that a backend accepted, if these are most of them.

    A few such nodes are no acceptance: with them alone no session is created.
    """
    layers = {name: result.operators[name] for name in _WEIGHTED if name in result.operators}
    total = sum(nodes["qnn"] + nodes["elsewhere"] for nodes in layers.values())
    on_qnn = {name: nodes["qnn"] for name, nodes in layers.items() if nodes["qnn"]}
    named = ", ".join(f"{count} {name}" for name, count in on_qnn.items())
    return f"{named} of {total}" if 2 * sum(on_qnn.values()) > total else ""


def _broken(checks: Sequence[Check], verdict: Verdict) -> Verdict:
    if verdict.outcome != "passed":
        return verdict
    broken = [check for check in checks if check.verdict == "broken"]
    message = "\n".join(f"{check.name}: {check.reason}" for check in broken)
    return Verdict("failed", "target", ErrorRecord.of(message=message))


def _refused(phase: Phase, verdict: Verdict) -> Check:
    error = verdict.error
    code = None if error is None else error.code
    return held(phase, False, f"{verdict.outcome}: {_first_line(verdict)}", code=code)


def _phase_reason(phase: Phase, result: Progress) -> str:
    if phase != "op_support":
        return "done"
    total = sum(sum(nodes.values()) for nodes in result.operators.values())
    return f"{counted(total, 'node')} on QNN, none elsewhere"


def _not_taken(result: Progress) -> str:
    """Return the nodes that are not on QNN, by operator."""
    rest = {name: nodes for name, nodes in result.operators.items() if nodes["elsewhere"]}
    total = sum(sum(nodes.values()) for nodes in result.operators.values())
    count = sum(nodes["elsewhere"] for nodes in rest.values())
    shown = ", ".join(
        f"{nodes['elsewhere']} of {sum(nodes.values())} {name}"
        for name, nodes in sorted(rest.items(), key=lambda item: -item[1]["elsewhere"])
    )
    return f"{count} of {total} nodes are not on QNN: {shown}" if rest else ""


def _reworded(error: ErrorRecord, message: str) -> ErrorRecord:
    return ErrorRecord.of(
        api=error.api, code=error.code, message=message, step=error.step, context=error.context
    )


def _first_line(verdict: Verdict) -> str:
    if (error := verdict.error) is None:
        return verdict.outcome
    call = " ".join(str(part) for part in (error.api, error.code) if part is not None)
    line = error.message.partition("\n")[0]
    return f"{call} {line}".strip()


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# By default the nodes at the ends of a quantised model go to ORT's CPU provider (ORT's docs).
_ALL_NODES: Final = {"offload_graph_io_quantization": "0"}


def measure_backend(bench: Bench, model: Model) -> None:
    """Run a model with ONNX Runtime on the placement's backend, as far as it is supported.

    The backend is first opened without ORT, in a process of its own, to get its own error. Raises
    TargetFailure at the phase that refused the model, or if an output is not close enough to that
    of ORT on the CPU.
    """
    _open(bench, model)
    ort, deployed = bench.ort(), bench.model(model)
    with bench.scratch() as folder:
        saved = [f"{folder}/output.{index}" for index in range(len(model.outputs()))]
        steps = (
            # With fallback the session reports the unsupported nodes, and the next step fails for
            # them. An ORT that does not report them must not fall back.
            ort_session(
                0,
                deployed.file,
                ort.provider(_ALL_NODES),
                fallback=ort.reports_placement or ort.needs_fallback,
            ),
            ort_placement(0, whole=QNN_EP),
            ort_run(0, inputs=deployed.inputs, saved=saved),
        )
        result = bench.run(ort.plan(steps, sessions=1, settings=Settings(memory="rss")))
        if _settle(bench, model, progress(result.run.transcript, result.verdict)):
            _compare(bench, model, saved)


def measure_context(bench: Bench, model: Model | SourceList) -> None:
    """Run a model's context binary with QNN itself; raises like `measure_backend`.

    A user's own contexts pass all phases but the last, unless they have expected outputs.
    """
    if isinstance(model, SourceList):
        contexts = bench.contexts(*model)
        result = bench.run(bench.context_plan(contexts, schedule(len(contexts), "resident")))
        _settle(bench, None, progress(result.run.transcript, result.verdict))
        return
    (context,) = bench.contexts(model)
    libraries = bench.libraries()
    with bench.scratch() as folder:
        saved = [f"{folder}/output.{index}" for index in range(len(context.expected))]
        steps = context_load(0, context.binary), execute(0, inputs=context.inputs, saved=saved)
        settings = Settings(memory="rss")
        result = bench.run(within_session(libraries, steps, [context_free(0)], settings))
        if _settle(bench, model, progress(result.run.transcript, result.verdict)):
            _compare(bench, model, saved)


def _open(bench: Bench, model: Model) -> None:
    """Open the backend, and nothing else. Raises TargetFailure if it does not open."""
    try:
        libraries = bench.libraries()
    except TargetFailure as failure:
        _settle(bench, model, Progress("init", failure.verdict))
        raise
    alone = replace(libraries, system=None)
    opened = bench.attempt(within_session(alone, (), (), Settings(memory="off")))
    steps = opened.run.transcript.steps
    bench.measure(init_us={step.verb: step.duration_us for step in steps if step.ok})
    if opened.verdict.outcome != "passed":
        _settle(bench, model, Progress("init", opened.verdict))
    skipped = [step.skipped for step in steps if step.verb == "device-create" and step.skipped]
    if skipped:
        bench.measure(device=skipped[0])


def _settle(bench: Bench, model: Model | None, result: Progress) -> bool:
    """Record the phases that a model passed; return whether there are outputs to compare.

    Raises TargetFailure unless it ran to the end, or was refused as it must be.
    """
    refusal = expected_refusal(bench.placement.backend, model.data_type) if model else None
    checks, verdict = judge_progress(result, refusal)
    bench.measure(**result.record())
    bench.check(*checks)
    if verdict.outcome != "passed":
        raise NotPassed.of(verdict)
    if result.refused is None:
        return True
    bench.accept_refusal()
    bench.conclude(f"refused at {result.refused}, as expected")
    return False


def _compare(bench: Bench, model: Model, saved: Sequence[str]) -> None:
    """Compare the outputs on the device with those of ORT on the CPU."""
    import numpy as np

    kind = arithmetic(bench.placement.backend, model.data_type)
    checks: list[Check] = []
    figures: list[Accuracy] = []
    references = bench.reference(model).expected
    for name, remote, reference in zip(model.outputs(), saved, references, strict=True):
        expected = reference.read_bytes()
        got = bench.fetch(remote, max_bytes=len(expected))
        if len(got) != len(expected):
            problem = f"{len(got)} bytes, the reference has {len(expected)}"
            checks.append(held(f"size[{name}]", False, problem))
            continue
        values, expected_values = (np.frombuffer(raw, model.output_type) for raw in (got, expected))
        figures.append(compare(name, values, expected_values))
        checks += judge_accuracy(figures[-1], CLOSENESS[kind])
    bench.outputs_compared()
    bench.measure(arithmetic=kind, accuracy=[asdict(figure) for figure in figures])
    bench.expect(*checks)
    bench.conclude(
        "; ".join(
            f"{each.output}: cosine {_text(each.cosine)}, max abs {_text(each.max_abs)} ({kind})"
            for each in figures
        )
    )


def _text(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.7g}"
