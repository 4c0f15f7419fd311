"""Steps of ORT in a record: the error of a refusal, and the figures of sessions."""

from __future__ import annotations

from typing import Any

import pytest

from harness.probe.events import LogLine, StepResult
from harness.results.measurements import measure
from harness.results.ort_figures import WARM_ROUNDS, growth_per_round, ort_figures
from harness.results.record import CaseRecord, OrtCode
from harness.results.step_error import step_error
from harness.results.verdict import judge
from tests.unit.results.records import record
from tests.unit.results.test_verdict import DONE, START, begin, end, log, run

NO_PD = "Failed to find available PD for contextId 55 on deviceId 0"
TEXT = "Failed to load. Error: QNN_COMMON_ERROR_MEM_ALLOC: Memory allocation related error."


def step(verb: str, number: int = 0, **more: Any) -> StepResult:
    given: dict[str, Any] = {"begun": True, "ended": True, "code": 0} | more
    return StepResult(number, verb, **given)


def refused(**more: Any) -> StepResult:
    given: dict[str, Any] = {
        "api": "CreateSession",
        "context": 54,
        "code": 10,
        "symbol": "ORT_INVALID_GRAPH",
        "message": TEXT,
        "logs": [LogLine("error", f" <E> {NO_PD}", 1), LogLine("warn", "not this", 2)],
    }
    return step("ort-session", 59, **(given | more))


def test_a_refusal_has_qnns_code_and_orts_own() -> None:
    error = step_error(refused())
    assert (error.api, error.code, error.hex) == ("CreateSession", 1002, "0x3ea")
    assert (error.symbol, error.component) == ("QNN_COMMON_ERROR_MEM_ALLOC", "common")
    assert error.ort == OrtCode(code=10, name="ORT_INVALID_GRAPH")
    assert (error.step, error.context) == (59, 54)
    assert error.message == f"{NO_PD}\n{TEXT}"
    assert error.signature.startswith("CreateSession|1002|Failed to find available PD")


def test_a_refusal_without_a_code_of_qnns() -> None:
    error = step_error(refused(message="Empty cache file.", logs=[]))
    assert (error.code, error.hex, error.symbol, error.component) == (None, None, None, None)
    assert error.ort is not None
    assert error.signature == "CreateSession|-|Empty cache file."


def test_a_text_too_long_for_its_place_is_taken_whole() -> None:
    whole = "x" * 3000 + " Error code: 6999"
    error = step_error(refused(message=whole[:1023], data={"status_text": whole}, logs=[]))
    assert error.code == 6999
    assert error.symbol == "QNN_GRAPH_MAX_ERROR"


def test_what_is_said_to_a_person() -> None:
    events = (
        START,
        begin(api="CreateSession", verb="ort-session"),
        log(NO_PD),
        end(code=10, symbol="ORT_INVALID_GRAPH", message=TEXT),
        DONE,
    )
    verdict = judge(run(*events, exit_code=1))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    assert verdict.explanation().partition("\n")[0] == (
        "failed in step 3, context 56: CreateSession returned 10 (ORT_INVALID_GRAPH), QNN 1002 "
        "(QNN_COMMON_ERROR_MEM_ALLOC, common)"
    )


@pytest.mark.parametrize("error", ["placement", "no-device"])
def test_a_silent_fallback_is_the_targets_failure(error: str) -> None:
    said = "1 of 4 nodes are not on QNNExecutionProvider but on CPUExecutionProvider"
    events = (
        START,
        begin(verb="ort-placement"),
        end(code=None, error=error, message=said),
        DONE,
    )
    verdict = judge(run(*events, exit_code=1))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    assert verdict.error is not None
    assert verdict.error.message == said


def test_a_record_with_orts_code_survives_json() -> None:
    made = record(outcome="failed", cause="target", error=step_error(refused()))
    assert CaseRecord.model_validate_json(made.model_dump_json()) == made


def rounds(levels: list[int]) -> list[StepResult]:
    steps = [step("ort-load", data={"version": "1.26.0"})]
    for level in levels:
        steps += [
            step("ort-session", data={"anonymous_before_bytes": 1000}, duration_us=7),
            step("ort-run", duration_us=5, data={"outputs": [{"max_abs": 0.5, "beyond": 0}]}),
            step("ort-session-free", data={"anonymous_bytes": level}, duration_us=3),
        ]
    return steps


def test_figures_of_sessions_one_after_the_other() -> None:
    placement = {"placement": [{"ep": "QNN", "nodes": 3}, {"ep": 4}, "noise"]}
    warm = [5000] * WARM_ROUNDS
    steps = [*rounds([*warm, 6000, 6010, 9010, 9020]), step("ort-placement", data=placement)]
    figures = ort_figures(steps)
    assert figures["ort_version"] == "1.26.0"
    assert (figures["sessions"], figures["runs"], figures["released"]) == (12, 12, 12)
    assert figures["placement"] == {"QNN": 3}
    assert figures["kept_bytes"] == 8020
    assert figures["growth_bytes_per_session"] == 10
    assert figures["drift_bytes"] == 3020


def test_sessions_that_exist_together_say_nothing_of_growth() -> None:
    created = [step("ort-session", data={"anonymous_before_bytes": 0}) for _ in range(30)]
    released = [step("ort-session-free", data={"anonymous_bytes": 99 - at}) for at in range(30)]
    figures = ort_figures([*created, *released])
    assert figures["kept_bytes"] == 70
    assert "growth_bytes_per_session" not in figures


@pytest.mark.parametrize("value", [None, "many", True, -5, 1.5])
def test_memory_that_the_device_does_not_tell(value: object) -> None:
    steps = [
        step("ort-session", data={"anonymous_before_bytes": 1}),
        step("ort-session-free", data={"anonymous_bytes": value}),
    ]
    assert "kept_bytes" not in ort_figures(steps)


def test_a_process_without_ort_has_no_figures_of_it() -> None:
    assert ort_figures([step("context-load")]) == {}


def test_outputs_of_sessions_are_summed_up() -> None:
    transcript = run(START).transcript
    transcript.steps = rounds([1, 2])
    assert measure(transcript)["outputs"] == {
        "compared": 2,
        "max_abs": 0.5,
        "beyond_tolerance": 0,
    }


@pytest.mark.parametrize(
    ("levels", "growth"),
    [([5, 5, 5, 5], 0), ([0, 10, 20, 30], 10), ([0, 0, 4000, 4000, 4000], 0), ([9, 3], -6)],
)
def test_growth_is_what_most_rounds_add(levels: list[int], growth: int) -> None:
    assert growth_per_round(levels) == growth
