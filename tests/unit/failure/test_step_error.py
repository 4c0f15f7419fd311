"""Failed steps of ORT in a record: QNN's code, ORT's own, and all that was said."""

from __future__ import annotations

from typing import Any

import pytest

from harness.failure.error import OrtCode
from harness.failure.step_error import step_error
from harness.failure.verdict import Verdict, judge
from harness.probe.transcript import LogLine, StepResult
from harness.report.grid import code_of
from harness.results.record import CaseRecord
from tests.unit.failure.test_verdict import DONE, START, begin, end, log, run
from tests.unit.results.records import record

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


@pytest.mark.parametrize("error", ["mismatch", "guard"])
def test_a_call_that_succeeded_is_not_told_by_its_code(error: str) -> None:
    said = "run 1: output 0 has 1 of 16 elements beyond 0.01, the first at 13"
    made = step_error(step("execute", 3, api="QnnGraph_execute", error=error, message=said))
    assert (made.code, made.call) == (0, "QnnGraph_execute")
    told = Verdict("failed", "target", made).explanation()
    assert told.startswith(
        "failed in step 3: QnnGraph_execute succeeded, and what it gave is wrong"
    )
    assert "QNN_SUCCESS" not in told
    failed = record(outcome="failed", error=made)
    assert code_of(failed) == "outputs"
    # a process that dies behind such an answer is told as what it is
    assert "returned 0" in Verdict("crashed", "target", made).explanation()


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
