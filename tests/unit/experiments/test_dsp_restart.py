"""A restart in mid-run: which calls stand where, and what is judged of their answers."""

from typing import Any

import pytest

from harness.experiments.dsp_restart import (
    is_between_executions,
    judge_restart,
    restart_figures,
    restart_plan,
)
from harness.models.session_plan import DeployedContext, Libraries
from harness.probe.transcript import StepResult, Transcript
from tests.unit.models.test_session_plan import CONTEXT

DEPLOYED = DeployedContext(CONTEXT, "/d/c.bin", ("/d/i",), ("/d/e",))


def step(verb: str, context: int, code: int | None = 0, **more: Any) -> StepResult:
    fields: dict[str, Any] = {"begun": True, "ended": True, "duration_us": 10} | more
    return StepResult(step=0, verb=verb, context=context, code=code, **fields)


def restarted(*changed: tuple[int, StepResult]) -> Transcript:
    """Return the answers of QNN 2.51.0 with the real skel in the emulator."""
    steps = [
        step("context-load", 0),
        step("io-run", 0),
        step("io-run", 0, 1003),
        step("io-run", 0, 1007, duration_us=700),
        step("context-free", 0),
        step("context-load", 1, duration_us=140),
        step("io-run", 1, duration_us=80),
    ]
    for index, other in changed:
        steps[index] = other
    return Transcript(steps=steps)


def verdicts(transcript: Transcript) -> dict[str, str]:
    return {check.name: check.verdict for check in judge_restart(transcript)}


def test_what_comes_behind_the_restart_is_tried_whatever_failed() -> None:
    plan = restart_plan(Libraries("/d/libQnnHtp.so", None), DEPLOYED)
    verbs = [step.verb for step in plan.steps]
    before, behind = verbs[: verbs.index("cleanup")], verbs[verbs.index("cleanup") :]
    assert before[-4:] == ["context-load", "io-bind", "io-run", "io-run"]
    assert behind.count("io-run") == 2
    assert behind.index("context-free") < behind.index("context-load")


def test_a_restart_that_is_told_and_overcome() -> None:
    assert is_between_executions(restarted())
    assert set(verdicts(restarted()).values()) == {"held"}
    assert restart_figures(restarted()) == {
        "told_code": 1003,
        "until_loaded_us": 10 + 700 + 10 + 140,
        "old_execute_code": 1007,
        "old_free_code": 0,
        "new_load_code": 0,
        "new_load_us": 140,
        "new_execute_code": 0,
        "new_execute_us": 80,
    }


@pytest.mark.parametrize(
    ("index", "answer", "name"),
    [
        (2, step("io-run", 0, 6001), "restart_reported"),
        (2, step("io-run", 0, 0, error="mismatch"), "restart_reported"),
        (3, step("io-run", 0, 0, error="mismatch"), "old_context_is_not_silently_wrong"),
        (4, step("context-free", 0, 1007), "old_context_is_freed"),
        (5, step("context-load", 1, 1007), "new_context_loads"),
        (6, step("io-run", 1, 0, error="mismatch"), "new_context_executes"),
    ],
)
def test_one_wrong_answer_breaks_its_check_alone(index: int, answer: StepResult, name: str) -> None:
    by_name = verdicts(restarted((index, answer)))
    assert [check for check, verdict in by_name.items() if verdict == "broken"] == [name]


def test_an_old_context_that_is_right_again_is_well() -> None:
    by_name = verdicts(restarted((3, step("io-run", 0))))
    assert by_name["old_context_is_not_silently_wrong"] == "held"


def test_a_restart_at_another_call_is_not_the_one_that_was_wanted() -> None:
    assert not is_between_executions(restarted((1, step("io-run", 0, 1003))))
    well = restarted((2, step("io-run", 0)), (3, step("io-run", 0)))
    assert not is_between_executions(well)
    assert verdicts(well) == {"restart_reported": "unseen"}


def test_a_process_that_ends_there_has_nothing_more_to_show() -> None:
    by_name = verdicts(Transcript(steps=restarted().steps[:3]))
    assert by_name["new_context_loads"] == by_name["old_context_is_freed"] == "broken"
    assert by_name["old_context_is_not_silently_wrong"] == "unseen"
