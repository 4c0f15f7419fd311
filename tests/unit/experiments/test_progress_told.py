"""Texts about the phases that a model passed, and the bounds of what is counted."""

from __future__ import annotations

from typing import Any

import pytest

from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.experiments.backends import (
    Phase,
    Progress,
    judge_progress,
    operators_of,
    progress,
    rejected_operators,
)
from harness.probe.transcript import LogLine, StepResult, Transcript
from tests.unit.experiments.test_progress import (
    ALL,
    MAY,
    MUST,
    PART,
    PASSED,
    failed,
    part,
    placement,
    said_no,
    shown,
)


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


def reasons(result: Progress, refusal: Any = None) -> dict[str, str]:
    return {check.name: check.reason for check in judge_progress(result, refusal)[0]}


def test_each_phase_says_what_came_of_it() -> None:
    ran = {"init": "done", "op_support": "62 nodes on QNN, none elsewhere", "load": "done"}
    assert reasons(Progress(None, PASSED, ALL)) == ran | {"execute": "done"}
    untold = "this ORT does not tell where nodes went"
    assert reasons(Progress(None, PASSED))["op_support"] == untold
    assert shown(Progress(None, PASSED))[0] | {"op_support": ""} == {
        "init": "held",
        "op_support": "",
        "load": "held",
        "execute": "held",
    }
    result = Progress("load", failed(), ALL)
    checks, _ = judge_progress(result, None)
    assert checks[2].figures == {"code": 3110}
    assert checks[2].reason == "failed: CreateSession 3110 no"
    assert checks[3].reason == "refused at load"
    silent = Progress("load", Verdict("crashed", "target"), ALL)
    checks, _ = judge_progress(silent, None)
    assert (checks[2].reason, checks[2].figures) == ("crashed: crashed", {"code": None})
    bare = Verdict("failed", "target", ErrorRecord.of(message="alone"))
    assert reasons(Progress("load", bare, ALL))["load"] == "failed: alone"


@pytest.mark.parametrize(
    ("refused", "verdict", "operators", "message"),
    [
        (None, PASSED, ALL, "it ran; "),
        ("execute", failed(), ALL, "it was loaded, and failed at execute; "),
        ("accuracy", failed(), PART, "it was loaded, and failed at accuracy; "),
        ("load", failed("hung"), ALL, "hung instead, at load"),
        ("op_support", failed(), ALL, "it took 52 Conv of 52; "),
        ("op_support", failed(), PART, "at op_support: 52 of 62 nodes are not on QNN: 52 of 52"),
        ("load", failed(), {}, "at load: CreateSession 3110 no"),
        ("load", failed(code=None), PART, "no session was made, for a reason that need not be"),
        ("load", Verdict("failed", "target"), PART, "no session was made, for a reason that"),
        ("init", failed(), PART, "refused at init, as any model"),
    ],
)
def test_what_must_be_refused_says_what_became_of_it(
    refused: Phase | None, verdict: Verdict, operators: Any, message: str
) -> None:
    assert reasons(Progress(refused, verdict, operators), MUST)["refuses_uint8"].startswith(message)


@pytest.mark.parametrize(
    ("verdict", "operators", "message"),
    [
        (failed(code=None), PART, "52 of 62 nodes are not on QNN: 52 of 52 Conv; the QNN"),
        (failed(), {}, "CreateSession 3110 no; the QNN"),
        (failed(), ALL, "CreateSession 3110 no; the QNN"),
    ],
)
def test_what_need_not_be_taken_says_why_it_was_not(
    verdict: Verdict, operators: Any, message: str
) -> None:
    _, result = judge_progress(Progress("op_support", verdict, operators), MAY)
    assert result.error is not None
    assert result.error.message.startswith(message)
    silent = Verdict("crashed", "target")
    assert judge_progress(Progress("op_support", silent, operators), MAY)[1] == silent
