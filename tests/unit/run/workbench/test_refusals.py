"""A backend that does not open is asked once; nothing else is taken for its answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.probe.ort_plan import ort_env, ort_load, ort_register_ep, ort_session
from harness.probe.plan import Plan, Settings, Step, backend_load, device_create
from harness.probe.plan_runner import ProbeRun
from harness.probe.transcript import Transcript
from harness.run.workbench.refusals import Refusal, Refusals
from harness.verdict.failure.error import ErrorRecord
from harness.verdict.failure.verdict import Verdict

OPENING = (backend_load("/s/libQnnHtp.so"), Step("log-create"), Step("backend-create"))
PLAN = Plan((*OPENING, device_create(), Step("noop")))
OTHER_CASE = Plan((*OPENING, device_create(), Step("sleep", {"ms": "1"})), Settings(memory="off"))
ORT = (ort_load("/s/libonnxruntime.so"), ort_env(), ort_register_ep("/s/ep.so"))


def refusal(plan: Plan, step: int | None, outcome: str = "unsupported") -> Refusal:
    error = ErrorRecord.of(api="QnnLog_create", code=4000, message="No Snapdragon", step=step)
    run = ProbeRun(plan, Transcript(), 1, None, False, False, b"", b"", 0.1)
    return Refusal(run, Verdict(outcome, None, error))  # type: ignore[arg-type]


def asked(plan: Plan, step: int | None, later: Plan, outcome: str = "unsupported") -> bool:
    """Whether a later plan has to be asked after a process ended so."""
    refusals = Refusals()
    refusals.note({}, plan, refusal(plan, step, outcome), "logs/first")
    return refusals.find({}, later) is None


def test_the_answer_is_given_again_and_says_whose_it_is() -> None:
    refusals = Refusals()
    first = refusal(PLAN, 1)
    refusals.note({}, PLAN, first, "logs/first")
    again = refusals.find({}, OTHER_CASE)
    assert again is not None
    assert again.run == first.run
    assert again.verdict.error is not None
    assert first.verdict.error is not None
    assert again.verdict.error.message.splitlines() == [
        "No Snapdragon",
        "It was not asked again: logs/first has this answer.",
    ]
    assert replace(again.verdict, error=None) == replace(first.verdict, error=None)
    for field in ("api", "code", "step", "signature"):
        assert getattr(again.verdict.error, field) == getattr(first.verdict.error, field)


@pytest.mark.parametrize("outcome", ["passed", "failed", "crashed", "hung", "error"])
def test_only_unsupported_is_an_answer(outcome: str) -> None:
    assert asked(PLAN, 1, OTHER_CASE, outcome)
    assert not asked(PLAN, 1, OTHER_CASE)


ARCH_81 = Plan((*OPENING, device_create(arch=81)))


@pytest.mark.parametrize(
    ("refused", "step", "later", "is_asked"),
    [
        (PLAN, 3, OTHER_CASE, False),
        (PLAN, None, PLAN, True),
        (PLAN, 4, PLAN, True),
        (PLAN, 3, Plan(OPENING), True),
        (PLAN, 2, Plan(OPENING), False),
        (PLAN, 1, Plan((backend_load("/t/libQnnHtp.so"), *OPENING[1:])), True),
        (PLAN, 1, Plan((OPENING[0], OPENING[2])), True),
        (ARCH_81, 3, PLAN, True),
        (ARCH_81, 2, PLAN, False),
        (Plan((*ORT, Step("noop"))), 2, Plan((*ORT, ort_session(0, "m.onnx"))), False),
        (Plan((*ORT, ort_session(0, "m.onnx"))), 3, Plan((*ORT, ort_session(0, "m.onnx"))), True),
        (Plan(ORT), 2, PLAN, True),
    ],
)
def test_what_is_opened_otherwise_is_asked(
    refused: Plan, step: int | None, later: Plan, is_asked: bool
) -> None:
    assert asked(refused, step, later) == is_asked


def test_another_environment_is_asked() -> None:
    refusals = Refusals()
    refusals.note({"A": "1"}, PLAN, refusal(PLAN, 1), "logs/first")
    assert refusals.find({"A": "1"}, PLAN) is not None
    others: list[dict[str, str]] = [{}, {"A": "2"}, {"A": "1", "B": "1"}]
    for environment in others:
        assert refusals.find(environment, PLAN) is None
