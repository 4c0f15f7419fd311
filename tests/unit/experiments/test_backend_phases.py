"""Phases that a model passed on a backend, the verdict about them, and the bounds of counts."""

from typing import Any

import pytest

from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.experiments.backend_phases import (
    PHASES,
    REFUSALS,
    Phase,
    Progress,
    expected_refusal,
    judge_progress,
    operators_of,
    progress,
    rejected_operators,
)
from harness.probe.transcript import LogLine, StepResult, Transcript
from tests.snapshots import Snapshot

ALL = {"Conv": {"qnn": 52, "elsewhere": 0}, "Add": {"qnn": 10, "elsewhere": 0}}
PART = {"Conv": {"qnn": 0, "elsewhere": 52}, "QuantizeLinear": {"qnn": 10, "elsewhere": 0}}
PASSED = Verdict("passed")
MUST, MAY = (
    next(refusal for refusal in REFUSALS if refusal.must is must) for must in (True, False)
)


def failed(outcome: str = "failed", code: int | None = 3110) -> Verdict:
    error = ErrorRecord.of(api="CreateSession", code=code, message="no\nmore of it")
    cause = None if outcome == "unsupported" else "target"
    return Verdict(outcome, cause, error)  # type: ignore[arg-type]


def placement(*parts: dict[str, Any], error: str | None = None) -> StepResult:
    return StepResult(
        4,
        "ort-placement",
        begun=True,
        ended=True,
        code=None if error else 0,
        error=error,
        data={"placement": list(parts)},
    )


def part(ep: str, **nodes: int) -> dict[str, Any]:
    listed = [{"operator": name, "nodes": count} for name, count in nodes.items()]
    return {"ep": ep, "nodes": sum(nodes.values()), "operator_nodes": listed}


def shown(result: Progress, refusal: Any = None) -> tuple[dict[str, str], str]:
    checks, verdict = judge_progress(result, refusal)
    return {check.name: check.verdict for check in checks}, verdict.outcome


@pytest.mark.parametrize("refused", PHASES[:-1])
@pytest.mark.parametrize("outcome", ["failed", "crashed", "hung", "unsupported"])
def test_where_it_broke_and_only_there(refused: Phase, outcome: str) -> None:
    checks, result = shown(Progress(refused, failed(outcome), ALL))
    position = PHASES.index(refused)
    there = "unseen" if outcome == "unsupported" else "broken"
    expected = ["held"] * position + [there] + ["unseen"] * (len(PHASES) - 2 - position)
    assert checks == dict(zip(PHASES[:-1], expected, strict=True))
    assert result == outcome


def test_a_context_binary_has_no_nodes_to_take() -> None:
    assert set(shown(Progress(None, PASSED, ALL))[0]) == set(PHASES[:-1])
    checks, _ = shown(Progress(None, PASSED, composed=False))
    assert set(checks) == {"init", "load", "execute"}


@pytest.mark.parametrize("backend", ["htp", "gpu", "cpu"])
def test_float_models_are_refused_nowhere(backend: str) -> None:
    assert expected_refusal(backend, "float32") is None
    assert expected_refusal("gpu", "uint8") is MUST


@pytest.mark.parametrize(
    ("verb", "phase"),
    [
        ("backend-create", "init"),
        ("ort-register-ep", "init"),
        ("ort-session", "load"),
        ("context-load", "load"),
        ("ort-placement", "op_support"),
        ("ort-run", "execute"),
        ("execute", "execute"),
    ],
)
def test_the_phase_of_a_step(verb: str, phase: str) -> None:
    step = StepResult(3, verb, begun=True, ended=True, code=6999)
    assert progress(Transcript(steps=[step]), failed()).refused == phase
    hung = StepResult(3, verb, begun=True)
    assert progress(Transcript(steps=[hung]), failed("hung")).refused == phase


def test_a_process_that_said_nothing_was_not_opened() -> None:
    assert progress(Transcript(), failed("crashed")).refused == "init"


def test_errors_beside_nodes_that_were_taken_do_not_mean_the_backend() -> None:
    session = StepResult(2, "ort-session", begun=True, ended=True, code=0)
    session.logs.append(LogLine("error", "an op was not validated", 1))
    parts = part("CPUExecutionProvider", Conv=3), part("QNNExecutionProvider", Add=1)
    result = progress(Transcript(steps=[session, placement(*parts, error="x")]), failed(code=None))
    assert result.refused == "op_support"


# As Android's linker says it; the last where the libraries of the vendor are not for applications.
OF_ANDROID = (
    'dlopen failed: library "libQnnHtp.so" not found',
    'dlopen failed: library "libcdsprpc.so" not found: needed by /x/libQnnHtp.so in namespace (x)',
    'dlopen failed: cannot locate symbol "f" referenced by "/x/libQnnHtp.so"...',
    'dlopen failed: library "/vendor/lib64/libcdsprpc.so" needed or dlopened by "/x/libQnnHtp.so" '
    'is not accessible for the namespace "default"',
)
FALLBACK = "nodes are assigned to CPU, but fallback to CPU EP has been explicitly disabled"


@pytest.mark.parametrize(
    ("message", "code", "check", "outcome"),
    [
        ("whatever", 3110, "held", "passed"),
        ("whatever", 6999, "unseen", "failed"),
        ("whatever", 1007, "unseen", "failed"),
        ("Failed to find available PD for contextId 3", 1002, "unseen", "failed"),
        (FALLBACK, None, "held", "passed"),
        (f"QNN SetupBackend failed\n{FALLBACK}", None, "unseen", "failed"),
        (f"libX.so: cannot open shared object file\n{FALLBACK}", None, "unseen", "failed"),
        *((f"{words}\n{FALLBACK}", None, "unseen", "failed") for words in OF_ANDROID),
        ("OrtEp has invalid ort_version_supported=0", None, "unseen", "failed"),
    ],
)
def test_only_a_reason_in_the_model_is_a_refusal(
    message: str, code: int | None, check: str, outcome: str
) -> None:
    error = ErrorRecord.of(api="CreateSession", code=code, message=message)
    verdict = Verdict("failed", "target", diagnosed("failed", error))
    checks, came_to = shown(Progress("load", verdict), MUST)
    assert (checks["refuses_uint8"], came_to) == (check, outcome)


@pytest.mark.parametrize(
    ("conv", "check"), [(0, "held"), (1, "held"), (26, "held"), (27, "broken"), (51, "broken")]
)
def test_a_backend_that_takes_most_of_a_model_does_not_refuse_it(conv: int, check: str) -> None:
    operators = {
        "Conv": {"qnn": conv, "elsewhere": 52 - conv},
        "DequantizeLinear": {"qnn": 3, "elsewhere": 100},
    }
    checks, outcome = shown(Progress("op_support", failed(code=None), operators), MUST)
    assert checks["refuses_uint8"] == check
    assert outcome == ("passed" if check == "held" else "failed")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"placement": 3},
        {"placement": [3]},
        {"placement": [{"ep": "QNNExecutionProvider", "operator_nodes": "many"}]},
        {"placement": [{"operator_nodes": [{"operator": 3, "nodes": 1}]}]},
        {"placement": [{"operator_nodes": [{"operator": "Conv", "nodes": True}]}]},
        {"placement": [{"operator_nodes": [{"operator": "Conv", "nodes": -1}]}]},
    ],
)
def test_events_without_their_proper_form_count_nothing(data: dict[str, Any]) -> None:
    assert operators_of([StepResult(1, "ort-placement", data=data)]) == {}


NOT_SELECTED = (
    "Node '_token_11' OpType:Conv with domain:com.ms.internal.nhwc was inserted using the NHWC "
    "format as requested by QNNExecutionProvider, but was not selected by that EP."
)


def said_no(node: str, kind: str, code: int) -> LogLine:
    text = (
        "QNN.backendValidateOpConfig() failed for node `{}` of type `{}` with error code {} [x.cc]"
    )
    return LogLine("warn", text.format(node, kind, code), None)


def layout_refused(*lines: LogLine) -> Progress:
    """A session that ORT did not make, having laid out nodes for QNN that QNN did not take."""
    session = StepResult(
        3, "ort-session", begun=True, ended=True, api="CreateSession", code=1, logs=list(lines)
    )
    error = ErrorRecord.of(api="CreateSession", code=None, message=NOT_SELECTED)
    return progress(Transcript(steps=[session]), Verdict("failed", "target", error))


def test_a_twin_whose_layers_the_backend_turned_down_one_by_one() -> None:
    result = layout_refused(
        said_no("Quantize0", "Quantize", 4005),
        said_no("_token_11", "Conv2d", 3110),
        said_no("_token_18", "Conv2d", 3110),
        said_no("_token_18", "Conv2d", 6007),
    )
    assert result.rejected == {"Quantize": [4005], "Conv2d": [3110, 6007]}
    assert result.record()["rejected_operators"] == result.rejected
    checks, verdict = judge_progress(result, MUST)
    assert [(check.name, check.verdict) for check in checks] == [
        ("init", "held"),
        ("refuses_uint8", "held"),
    ]
    assert verdict.outcome == "passed"


@pytest.mark.parametrize(
    "lines", [(), (said_no("q", "Quantize", 4005),)], ids=["nothing", "no-layer"]
)
def test_a_layout_that_ort_got_wrong_is_no_refusal(lines: tuple[LogLine, ...]) -> None:
    checks, outcome = shown(layout_refused(*lines), MUST)
    assert checks == {"init": "held", "refuses_uint8": "unseen"}
    assert outcome == "failed"


def test_nodes_that_were_turned_down_do_not_mean_that_the_backend_did_not_open() -> None:
    lines = [said_no("_token_11", "Conv2d", 3110), LogLine("error", "GPU ERROR: x(10012)", None)]
    session = StepResult(3, "ort-session", begun=True, ended=True, code=0, logs=lines)
    steps = [session, placement(part("CPUExecutionProvider", Conv=52), error="placement")]
    result = progress(Transcript(steps=steps), failed())
    assert result.refused == "op_support"


def test_what_stands_in_a_record() -> None:
    assert Progress(None, PASSED).record() == {"refused_at": None}
    refused = Progress("load", failed(), PART, rejected={"Conv2d": [3110]}).record()
    refusal = refused.pop("refusal")
    assert refused == {
        "refused_at": "load",
        "operators": PART,
        "nodes": 62,
        "nodes_on_qnn": 10,
        "rejected_operators": {"Conv2d": [3110]},
    }
    assert isinstance(refusal, dict)
    assert (refusal["api"], refusal["code"]) == ("CreateSession", 3110)


def ended(verb: str, code: int = 0, **more: Any) -> StepResult:
    return StepResult(3, verb, begun=True, ended=True, code=code, **more)


@pytest.mark.parametrize(
    ("steps", "phase"),
    [
        ([ended("ort-session"), ended("ort-run")], "execute"),  # it crashed at its end
        ([ended("ort-session", 1), ended("ort-run")], "load"),
        ([ended("context-load"), StepResult(4, "execute")], "load"),  # not begun
    ],
)
def test_it_came_as_far_as_the_first_step_that_failed_or_else_the_last_that_began(
    steps: list[StepResult], phase: str
) -> None:
    assert progress(Transcript(steps=steps), failed("crashed")).refused == phase


@pytest.mark.parametrize(
    ("verbs", "composed"),
    [(["ort-session", "ort-run"], True), (["backend-create", "context-load"], False)],
)
def test_only_what_ort_made_of_a_model_was_composed(verbs: list[str], composed: bool) -> None:
    steps = [ended(verb) for verb in verbs]
    assert progress(Transcript(steps=steps), PASSED).composed is composed


def test_errors_of_a_session_are_added_to_why_nodes_were_not_taken_alone() -> None:
    lines = [LogLine("error", f" line {number} ", 1) for number in range(30)]
    session = ended("ort-session", logs=[*lines, *lines])
    other = ended("backend-create", logs=[LogLine("error", "of another step", 1)])
    placed = placement(part("CPUExecutionProvider", Conv=3), error="placement")
    result = progress(Transcript(steps=[other, session, placed]), failed())
    assert result.verdict.error is not None
    first = [f"line {number}" for number in range(20)]
    assert result.verdict.error.message.splitlines() == [*first, "no", "more of it"]
    # a verdict without an error, or about another phase, stays as it is
    for steps, verdict in [
        ([session, placed], Verdict("crashed", "target")),
        ([session, ended("ort-run", 1)], failed()),
    ]:
        assert progress(Transcript(steps=steps), verdict).verdict == verdict


def test_codes_of_refused_nodes_are_kept_of_sixty_four_operators() -> None:
    lines = [said_no("n", f"Op{number}", 3110) for number in range(70)]
    lines += [said_no("n", "Op63", 4005), LogLine("warn", "anything else", 2)]
    elsewhere = ended("ort-run", logs=[said_no("n", "Op1", 9)])
    rejected = rejected_operators([ended("ort-session", logs=lines), elsewhere])
    assert list(rejected) == [f"Op{number}" for number in range(64)]
    assert (rejected["Op1"], rejected["Op63"]) == ([3110], [3110, 4005])


def test_nodes_are_counted_of_sixty_four_operators_by_the_start_of_their_names() -> None:
    long = "x" * 100
    first = {f"Op{number}": 1 for number in range(63)} | {long: 2, "late": 9}
    parts = part("QNNExecutionProvider", **first), part("CPUExecutionProvider", Op1=0, Op2=5)
    more = placement(part("QNNExecutionProvider", **{long: 3}))
    other = ended("ort-run", data=placement(part("x", Op1=7)).data)
    operators = operators_of([placement(*parts), more, other])
    assert len(operators) == 64
    assert (operators["Op1"], operators["Op2"]) == (
        {"qnn": 1, "elsewhere": 0},
        {"qnn": 1, "elsewhere": 5},
    )
    assert operators["x" * 80] == {"qnn": 5, "elsewhere": 0}
    assert operators_of([placement(part("x", Conv=0))]) == {"Conv": {"qnn": 0, "elsewhere": 0}}


def test_what_is_judged_of_how_far_it_came(snapshot: Snapshot) -> None:
    silent = Verdict("crashed", "target")
    bare = Verdict("failed", "target", ErrorRecord.of(message="alone"))
    lost = Verdict("error", "infra", ErrorRecord.of(message="no space left"))
    lines = []
    for refused, verdict, operators, refusal in (
        (None, PASSED, ALL, None),
        (None, PASSED, {}, None),
        ("load", failed(), ALL, None),
        ("load", silent, ALL, None),
        ("load", bare, ALL, None),
        ("load", lost, ALL, None),
        (None, PASSED, ALL, MUST),
        ("execute", failed(), ALL, MUST),
        ("load", failed("hung"), ALL, MUST),
        ("execute", failed("crashed"), ALL, MUST),
        ("op_support", failed(), ALL, MUST),
        ("op_support", failed(), PART, MUST),
        ("load", failed(), {}, MUST),
        ("load", failed(), PART, MUST),
        ("load", failed(code=None), PART, MUST),
        ("load", lost, ALL, MUST),
        ("init", failed(), PART, MUST),
        ("init", silent, PART, MUST),
        ("init", failed("unsupported"), PART, MUST),
        ("init", lost, PART, MUST),
        (None, PASSED, ALL, MAY),
        ("execute", failed(), ALL, MAY),
        ("op_support", failed(code=None), PART, MAY),
        ("op_support", failed(), ALL, MAY),
        ("op_support", silent, ALL, MAY),
    ):
        checks, judged = judge_progress(Progress(refused, verdict, operators), refusal)  # type: ignore[arg-type]
        asked = {None: "may run", MUST: "must refuse", MAY: "may refuse"}[refusal]
        lines.append(f"{refused}, {verdict.outcome}, {asked}: {judged.outcome}")
        lines += [
            f"  {check.name} {check.verdict}: {check.reason}"
            for check in checks
            if (check.verdict, check.reason) != ("held", "done")
        ]
        if judged.error not in (None, verdict.error):
            lines.append(f"  its error: {judged.error.message}")  # type: ignore[union-attr]
    assert lines == snapshot
