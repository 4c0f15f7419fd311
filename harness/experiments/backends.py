"""A model on a backend, phase by phase: opened, nodes taken, loaded, executed, compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from harness.bench.bench import Bench
from harness.bench.case_session import NotPassed, TargetFailure
from harness.core.outgoing_text import counted
from harness.diagnosis.diagnosis import is_unrelated
from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.experiments.accuracy import CLOSENESS, Accuracy, arithmetic, compare, judge_asked
from harness.models.contexts import SourceList
from harness.models.models import Model
from harness.models.source import schedule, within_session
from harness.probe.ort_plan import QNN_EP, ort_placement, ort_run, ort_session
from harness.probe.plan import Settings, context_free, context_load, execute
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Check, held, undecided

Phase = Literal["init", "op_support", "load", "execute", "accuracy"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
"""init: library, backend, device. op_support: the nodes it takes. load: a graph ready to run."""

_PHASE_OF: Final[Mapping[str, Phase]] = {
    "ort-placement": "op_support",
    "ort-session": "load",
    "context-load": "load",
    "ort-run": "execute",
    "execute": "execute",
}
# An error of the lab or of ours tells nothing about the target either.
_NO_VERDICT: Final = ("unsupported", "error")
# What ORT says of nodes on the CPU, and what comes before it where the reason is another; a library
# that could not be opened is told in the words of glibc or of Android.
_FALLBACK: Final = re.compile(r"fallback to CPU EP has been explicitly disabled")
_NOT_SET_UP: Final = re.compile(
    r"SetupBackend failed|GetCapability\(\).* failed|cannot open shared|dlopen failed: "
)
# The backend was asked about a node and said no.
_REJECTED: Final = re.compile(
    r"backendValidateOpConfig\(\) failed for node .{0,300}? of type `(\w{1,80})` "
    r"with error code (\d{1,10})"
)
_NOT_SELECTED: Final = re.compile(r"was not selected by that EP")
# What computes with weights: others of a quantised model may stand between float32 on both sides.
_WEIGHTED: Final = ("Conv", "Gemm", "MatMul")
_WEIGHTED_BY_QNN: Final = ("Conv2d", "DepthWiseConv2d", "FullyConnected", "MatMul")
_MOST_OPERATORS: Final = 64
_MOST_CHARS: Final = 80
_MOST_LINES: Final = 20


@dataclass(frozen=True)
class Untaken:
    """A kind of model that a backend does not take.

    `must`: taking it is wrong, since nobody knows what comes out. Else the target just cannot do
    it.
    """

    backend: str
    data_type: str
    must: bool
    source: str


REFUSALS: Final = (
    Untaken(
        "gpu",
        "uint8",
        must=True,
        source="quantised models do not run on the GPU backend (microsoft/onnxruntime#24004)",
    ),
    Untaken(
        "cpu",
        "uint8",
        must=False,
        source="the QNN provider: `Data type 2 is not supported for Conv operator in CPU backend`",
    ),
)


@dataclass(frozen=True)
class Reached:
    """How far a model came on a backend.

    `refused` is the phase in which it was turned down, None if it ran to the end; `verdict` is
    what the process came to. `operators` tells by operator how many nodes are on QNN, and how
    many elsewhere; nothing where ORT does not tell. `composed` is false for a context binary, of
    which the compiler took every node already. `rejected` tells by QNN's operators with which codes
    the backend said no when it was asked about a node.
    """

    refused: Phase | None
    verdict: Verdict
    operators: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    composed: bool = True
    rejected: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def record(self) -> dict[str, object]:
        """What stands in a record's measurements."""
        taken = sum(one["qnn"] for one in self.operators.values())
        total = sum(one["qnn"] + one["elsewhere"] for one in self.operators.values())
        figures: dict[str, object] = {"refused_at": self.refused}
        if total:
            figures |= {"operators": self.operators, "nodes": total, "nodes_on_qnn": taken}
        if self.rejected:
            figures["rejected_operators"] = self.rejected
        if self.verdict.error is not None:
            figures["refusal"] = self.verdict.error.model_dump(mode="json")
        return figures


def progress(transcript: Transcript, verdict: Verdict) -> Reached:
    """How far a process came that made a graph and ran it."""
    failed = transcript.first_failure or transcript.last_begun
    refused: Phase | None = None
    if verdict.outcome != "passed":
        refused = _PHASE_OF.get(failed.verb, "init") if failed else "init"
    operators = operators_of(transcript.steps)
    rejected = rejected_operators(transcript.steps)
    sessions = [step for step in transcript.steps if step.verb == "ort-session"]
    logged = (line for step in sessions for line in step.logs if line.level == "error")
    said = list(dict.fromkeys(line.text.strip() for line in logged))
    if refused == "op_support" and verdict.error is not None and said and not rejected:
        # Nodes that a backend does not take are no error to ORT: it was the backend itself.
        if not any(one["qnn"] for one in operators.values()):
            refused = "init"
        message = "\n".join([*said[:_MOST_LINES], verdict.error.message])
        verdict = replace(verdict, error=_reworded(verdict.error, message))
    composed = not any(step.verb.startswith("context-") for step in transcript.steps)
    return Reached(refused, verdict, operators, composed, rejected)


def rejected_operators(steps: Sequence[StepResult]) -> dict[str, list[int]]:
    """By operator of QNN's, the codes with which nodes were refused as sessions were made."""
    found: dict[str, list[int]] = {}
    for step in steps:
        for line in step.logs if step.verb == "ort-session" else ():
            said = _REJECTED.search(line.text)
            if said and (said[1] in found or len(found) < _MOST_OPERATORS):
                codes = found.setdefault(said[1], [])
                if int(said[2]) not in codes:
                    codes.append(int(said[2]))
    return found


def operators_of(steps: Sequence[StepResult]) -> dict[str, dict[str, int]]:
    """Nodes by operator, as far as what was reported of the placement has its proper form."""
    found: dict[str, dict[str, int]] = {}
    for step in steps:
        if step.verb != "ort-placement":
            continue
        for part in _objects(step.data.get("placement")):
            where = "qnn" if part.get("ep") == QNN_EP else "elsewhere"
            for one in _objects(part.get("operator_nodes")):
                said, nodes = one.get("operator"), one.get("nodes")
                if not isinstance(said, str) or type(nodes) is not int or nodes < 0:
                    continue
                name = said[:_MOST_CHARS]
                if name in found or len(found) < _MOST_OPERATORS:
                    found.setdefault(name, {"qnn": 0, "elsewhere": 0})[where] += nodes
    return found


def expected_refusal(backend: str, data_type: str) -> Untaken | None:
    """Whether a backend is known not to take a kind of model."""
    return next(
        (one for one in REFUSALS if (one.backend, one.data_type) == (backend, data_type)), None
    )


def judge_progress(found: Reached, refusal: Untaken | None) -> tuple[list[Check], Verdict]:
    """A check for each phase but the last, and what the case comes to.

    Where the model must be refused, that is the only check besides `init`, and being refused is
    what passes. A model that need not be taken and is not is `unsupported`.
    """
    reached = PHASES.index(found.refused) if found.refused else len(PHASES)
    if refusal is not None and refusal.must:
        return _judge_refusal(found, refusal, reached)
    verdict = found.verdict
    if refusal is not None and found.refused == "op_support" and verdict.error is not None:
        message = f"{_why(found)}; {refusal.source}"
        verdict = Verdict("unsupported", None, _reworded(verdict.error, message))
    checks: list[Check] = []
    for at, phase in enumerate(PHASES[:-1]):
        if phase == "op_support" and not found.composed:
            continue
        if at > reached:
            checks.append(undecided(phase, f"refused at {found.refused}"))
        elif at == reached and verdict.outcome in _NO_VERDICT:
            checks.append(undecided(phase, _first_line(verdict)))
        elif at == reached:
            checks.append(_refused(phase, verdict))
        elif phase == "op_support" and not found.operators:
            checks.append(undecided(phase, "this ORT does not tell where nodes went"))
        else:
            checks.append(held(phase, True, _how(phase, found)))
    return checks, verdict


def _judge_refusal(found: Reached, refusal: Untaken, reached: int) -> tuple[list[Check], Verdict]:
    name = f"refuses_{refusal.data_type}"
    if found.refused == "init":
        why = _first_line(found.verdict)
        checks = [_refused("init", found.verdict), undecided(name, "refused at init, as any model")]
        if found.verdict.outcome in _NO_VERDICT:
            checks[0] = undecided("init", why)
        return checks, found.verdict
    opened = held("init", True, _how("init", found))
    if found.verdict.outcome == "error":
        return [opened, undecided(name, _first_line(found.verdict))], found.verdict
    if found.verdict.outcome in ("crashed", "hung"):
        what = f"{found.verdict.outcome} instead, at {found.refused}"
        return [opened, held(name, False, what)], found.verdict
    if reached >= PHASES.index("execute"):
        what = (
            "it ran" if found.refused is None else f"it was loaded, and failed at {found.refused}"
        )
        checks = [opened, held(name, False, f"{what}; {refusal.source}")]
        return checks, _broken(checks, found.verdict)
    taken = _computed(found)
    if taken:
        checks = [opened, held(name, False, f"it took {taken}; {refusal.source}")]
        return checks, _broken(checks, found.verdict)
    if found.refused == "load" and not _says_what_it_refused(found):
        why = "no session was made, for a reason that need not be the model"
        return [opened, undecided(name, f"{why}: {_first_line(found.verdict)}")], found.verdict
    why = f"at {found.refused}: {_why(found)}"
    return [opened, held(name, True, why)], Verdict("passed")


def _why(found: Reached) -> str:
    """Why it was refused: nodes first, then operators, and else what the process came to."""
    return _not_taken(found) or _said_no(found) or _first_line(found.verdict)


def _says_what_it_refused(found: Reached) -> bool:
    """Whether a session was refused by QNN, or for nodes that would have gone to the CPU.

    If ORT had changed the layout of nodes for QNN, which then did not take them, it calls the graph
    invalid. Anything else that keeps a session from being made, such as versions that do not go
    together, refuses any model.
    """
    error = found.verdict.error
    if error is None or is_unrelated(error):
        return False
    if _NOT_SELECTED.search(error.message):
        return any(name in found.rejected for name in _WEIGHTED_BY_QNN)
    left = _FALLBACK.search(error.message) and not _NOT_SET_UP.search(error.message)
    return error.code is not None or bool(left)


def _said_no(found: Reached) -> str:
    """The operators that the backend was asked about and refused, with their codes."""
    return ", ".join(
        f"{'/'.join(map(str, codes))} for {name}" for name, codes in found.rejected.items()
    )


def _computed(found: Reached) -> str:
    """The nodes with weights that a backend took, if these are most of them.

    A few such nodes are no acceptance: with them alone no session is made.
    """
    layers = {name: found.operators[name] for name in _WEIGHTED if name in found.operators}
    total = sum(one["qnn"] + one["elsewhere"] for one in layers.values())
    taken = {name: one["qnn"] for name, one in layers.items() if one["qnn"]}
    named = ", ".join(f"{count} {name}" for name, count in taken.items())
    return f"{named} of {total}" if 2 * sum(taken.values()) > total else ""


def _broken(checks: Sequence[Check], verdict: Verdict) -> Verdict:
    if verdict.outcome != "passed":
        return verdict
    message = "\n".join(f"{one.name}: {one.reason}" for one in checks if one.verdict == "broken")
    return Verdict("failed", "target", ErrorRecord.of(message=message))


def _refused(phase: Phase, verdict: Verdict) -> Check:
    error = verdict.error
    code = None if error is None else error.code
    return held(phase, False, f"{verdict.outcome}: {_first_line(verdict)}", code=code)


def _how(phase: Phase, found: Reached) -> str:
    if phase != "op_support":
        return "done"
    nodes = sum(sum(one.values()) for one in found.operators.values())
    return f"{counted(nodes, 'node')} on QNN, none elsewhere"


def _not_taken(found: Reached) -> str:
    """Which nodes did not go to QNN, by operator."""
    left = {name: one for name, one in found.operators.items() if one["elsewhere"]}
    total = sum(sum(one.values()) for one in found.operators.values())
    count = sum(one["elsewhere"] for one in left.values())
    shown = ", ".join(
        f"{one['elsewhere']} of {sum(one.values())} {name}"
        for name, one in sorted(left.items(), key=lambda item: -item[1]["elsewhere"])
    )
    return f"{count} of {total} nodes are not on QNN: {shown}" if left else ""


def _reworded(error: ErrorRecord, message: str) -> ErrorRecord:
    return ErrorRecord.of(
        api=error.api, code=error.code, message=message, step=error.step, context=error.context
    )


def _first_line(verdict: Verdict) -> str:
    error: Any = verdict.error
    if error is None:
        return verdict.outcome
    what = " ".join(str(part) for part in (error.api, error.code) if part is not None)
    return f"{what} {error.message.partition(chr(10))[0]}".strip()


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# By default the nodes at the ends of a quantised model go to ORT's CPU provider (ORT's docs).
_ALL_NODES: Final = {"offload_graph_io_quantization": "0"}


def measure_backend(bench: Bench, model: Model) -> None:
    """Takes a model through ONNX Runtime on the placement's backend, as far as it goes.

    The backend is opened first without ORT, in a process of its own, so that its own answer is
    known. Raises TargetFailure at the phase that was refused, or if an output is not close enough
    to that of ORT on the CPU.
    """
    _open(bench, model)
    ort, deployed = bench.ort(), bench.model(model)
    with bench.scratch() as folder:
        saved = [f"{folder}/output.{at}" for at in range(len(model.outputs()))]
        steps = (
            # With fallback the session tells which nodes were not taken, and the step behind it
            # fails for them. An ORT that cannot tell must not fall back.
            ort_session(
                0,
                deployed.file,
                ort.provider(_ALL_NODES),
                fallback=ort.tells_placement or ort.wants_fallback,
            ),
            ort_placement(0, whole=QNN_EP),
            ort_run(0, inputs=deployed.inputs, saved=saved),
        )
        done = bench.run(ort.plan(steps, sessions=1, settings=Settings(memory="rss")))
        if _settle(bench, model, progress(done.run.transcript, done.verdict)):
            _compare(bench, model, saved)


def measure_context(bench: Bench, model: Model | SourceList) -> None:
    """Takes a model's context binary through QNN itself; raises as `measure_backend`.

    Contexts of the user's own go through all phases but the last, unless they came with outputs.
    """
    if isinstance(model, SourceList):
        contexts = bench.contexts(*model)
        done = bench.run(bench.context_plan(contexts, schedule(len(contexts), "resident")))
        _settle(bench, None, progress(done.run.transcript, done.verdict))
        return
    (context,) = bench.contexts(model)
    libraries = bench.libraries()
    with bench.scratch() as folder:
        saved = [f"{folder}/output.{at}" for at in range(len(context.expected))]
        steps = context_load(0, context.binary), execute(0, inputs=context.inputs, saved=saved)
        settings = Settings(memory="rss")
        done = bench.run(within_session(libraries, steps, [context_free(0)], settings))
        if _settle(bench, model, progress(done.run.transcript, done.verdict)):
            _compare(bench, model, saved)


def _open(bench: Bench, model: Model) -> None:
    """Opens the backend, and nothing else; raises TargetFailure where it does not open."""
    try:
        libraries = bench.libraries()
    except TargetFailure as failure:
        _settle(bench, model, Reached("init", failure.verdict))
        raise
    alone = replace(libraries, system=None)
    opened = bench.attempt(within_session(alone, (), (), Settings(memory="off")))
    made = opened.run.transcript.steps
    bench.measure(init_us={step.verb: step.duration_us for step in made if step.ok})
    if opened.verdict.outcome != "passed":
        _settle(bench, model, Reached("init", opened.verdict))
    without = [step.skipped for step in made if step.verb == "device-create" and step.skipped]
    if without:
        bench.measure(device=without[0])


def _settle(bench: Bench, model: Model | None, found: Reached) -> bool:
    """Records how far a model came; returns whether there is an output to compare.

    Raises TargetFailure unless it came to its end, or was refused as it must be.
    """
    refusal = expected_refusal(bench.placement.backend, model.data_type) if model else None
    checks, verdict = judge_progress(found, refusal)
    bench.measure(**found.record())
    bench.check(*checks)
    if verdict.outcome != "passed":
        raise NotPassed.of(verdict)
    if found.refused is None:
        return True
    bench.accept_refusal()
    bench.conclude(f"refused at {found.refused}, as it must be")
    return False


def _compare(bench: Bench, model: Model, saved: Sequence[str]) -> None:
    """Compares the outputs on the device with those of ORT on the CPU."""
    import numpy as np

    kind = arithmetic(bench.placement.backend, model.data_type)
    checks: list[Check] = []
    found: list[Accuracy] = []
    references = bench.reference(model).expected
    for name, remote, reference in zip(model.outputs(), saved, references, strict=True):
        expected = reference.read_bytes()
        got = bench.fetch(remote, max_bytes=len(expected))
        if len(got) != len(expected):
            why = f"{len(got)} bytes, the reference has {len(expected)}"
            checks.append(held(f"size[{name}]", False, why))
            continue
        one, other = (np.frombuffer(raw, model.output_type) for raw in (got, expected))
        found.append(compare(name, one, other))
        checks += judge_asked(found[-1], CLOSENESS[kind])
    bench.outputs_compared()
    bench.measure(arithmetic=kind, accuracy=[asdict(one) for one in found])
    bench.expect(*checks)
    bench.conclude(
        "; ".join(
            f"{one.output}: cosine {_text(one.cosine)}, max abs {_text(one.max_abs)} ({kind})"
            for one in found
        )
    )


def _text(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.7g}"
