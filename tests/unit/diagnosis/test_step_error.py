"""Failed steps of ORT in a record: QNN's code, ORT's own, and all that was said."""

from __future__ import annotations

from typing import Any

import pytest

from harness.diagnosis.error import OrtCode
from harness.diagnosis.verdict import Verdict, judge, step_error
from harness.probe.transcript import LogLine, StepResult
from harness.report.summary import code_of
from harness.results.record import CaseRecord
from tests.unit.diagnosis.test_verdict import DONE, START, begin, end, log, run
from tests.unit.results.records import record

NO_PD = "Failed to find available PD for contextId 55 on deviceId 0"
TEXT = "Failed to load. Error: QNN_COMMON_ERROR_MEM_ALLOC: Memory allocation related error."


def step(verb: str, number: int = 0, **more: Any) -> StepResult:
    fields: dict[str, Any] = {"begun": True, "ended": True, "code": 0} | more
    return StepResult(number, verb, **fields)


def refused(**more: Any) -> StepResult:
    fields: dict[str, Any] = {
        "api": "CreateSession",
        "context": 54,
        "code": 10,
        "symbol": "ORT_INVALID_GRAPH",
        "message": TEXT,
        "logs": [LogLine("error", f" <E> {NO_PD}", 1), LogLine("warn", "not this", 2)],
    }
    return step("ort-session", 59, **(fields | more))


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
    message = (
        "run 1: output 0 has 1 of 16 elements more than 0.01 from what is expected, the first at 13"
    )
    error_record = step_error(
        step("execute", 3, api="QnnGraph_execute", error=error, message=message)
    )
    assert (error_record.code, error_record.call) == (0, "QnnGraph_execute")
    text = Verdict("failed", "target", error_record).explanation()
    assert text.startswith(
        "failed in step 3: QnnGraph_execute succeeded, and what it gave is wrong"
    )
    assert "QNN_SUCCESS" not in text
    failed = record(outcome="failed", error=error_record)
    assert code_of(failed) == "outputs"
    # a process that dies behind such an answer is told as what it is
    assert "returned 0" in Verdict("crashed", "target", error_record).explanation()


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
    message = "1 of 4 nodes are not on QNNExecutionProvider but on CPUExecutionProvider"
    events = (
        START,
        begin(verb="ort-placement"),
        end(code=None, error=error, message=message),
        DONE,
    )
    verdict = judge(run(*events, exit_code=1))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    assert verdict.error is not None
    assert verdict.error.message == message


def test_a_record_with_orts_code_survives_json() -> None:
    case = record(outcome="failed", cause="target", error=step_error(refused()))
    assert CaseRecord.model_validate_json(case.model_dump_json()) == case


LOAD = "QnnContext_createFromBinary"


@pytest.mark.parametrize(
    ("fields", "logged", "message"),
    [
        ({"code": 5005}, [], ""),
        ({"code": 6999}, [], "end of the graph range, carries no cause"),
        ({"code": 6999, "message": "its words"}, [], "its words"),
        ({"code": 6999, "message": "its words"}, ["a", "b"], "a\nb"),
        ({"code": None, "error": "dlopen"}, [], "dlopen"),
        ({"code": None, "error": "dlopen", "message": "no file"}, ["a", "b"], "no file\na\nb"),
        # a step that was never heard of again
        ({"code": None, "ended": False}, [], ""),
    ],
)
def test_the_message_is_what_says_most(
    fields: dict[str, Any], logged: list[str], message: str
) -> None:
    lines = [LogLine("error", text, 1) for text in logged]
    error = step_error(step("context-load", 3, api=LOAD, context=7, logs=lines, **fields))
    assert (error.message, error.api, error.step, error.context) == (message, LOAD, 3, 7)
    assert (error.code, error.ort) == (fields["code"], None)


@pytest.mark.parametrize("verb", ["ort-run", "executorch-run"])
def test_of_a_step_that_was_never_heard_of_again_no_engine_says_anything(verb: str) -> None:
    error = step_error(step(verb, 3, api="Run", code=None, ended=False))
    assert (error.message, error.code, error.ort, error.api) == ("", None, None, "Run")


def test_a_call_that_has_no_name_is_none_unless_it_opens_a_library() -> None:
    assert step_error(step("backend-load", error="dlopen", code=None)).api == "dlopen"
    assert step_error(step("backend-load", error="symbol", code=None)).api is None


@pytest.mark.parametrize("verb", ["ort-run", "executorch-run"])
def test_what_the_probe_found_itself_is_told_of_any_engine(verb: str) -> None:
    result = step(verb, 2, api="Run", code=1, error="mismatch", message="run 0: wrong")
    error = step_error(result)
    assert (error.code, error.ort, error.message) == (0, None, "run 0: wrong")


def test_only_outputs_that_are_wrong_say_by_how_much() -> None:
    first = {"first_value": 0.5, "first_expected": 0.25}
    wrong = {"name": "y", "max_abs": 0.375, "beyond": 3, **first}
    data = {"error": "mismatch", "message": "m", "data": {"outputs": [{**wrong, "name": "z"}]}}
    assert step_error(step("execute", **data)).message == (
        "m\nz differs by up to 0.375; the first of them is 0.5, and 0.25 was expected"
    )
    assert step_error(step("execute", **(data | {"error": "guard"}))).message == "m"


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ((2.7558593, 2.7558641), "is 2.7558593, and 2.7558641 was"),
        ((1.5, 1.25), "is 1.5, and 1.25 was"),
    ],
)
def test_values_that_differ_are_told_so_that_they_do(
    first: tuple[float, float], message: str
) -> None:
    wrong = {"name": "y", "max_abs": 1, "beyond": 1, "first_value": first[0]}
    wrong |= {"first_expected": first[1]}
    result = step("execute", error="mismatch", message="m", data={"outputs": [wrong]})
    assert message in step_error(result).message


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ((None, 0.25), "the first of them is no finite number, and 0.25 was expected"),
        ((0.5, None), "the first of them is 0.5, and no finite number was expected"),
    ],
)
@pytest.mark.parametrize(("nan", "text"), [(2, "; NaN: 2 of its elements"), (0, "")])
def test_outputs_that_are_nan_are_called_so(
    first: tuple[float | None, float | None], message: str, nan: int, text: str
) -> None:
    fields = dict(zip(("first_value", "first_expected"), first, strict=True))
    wrong = {"name": "y", "max_abs": 0, "beyond": 3, "nan": nan, **fields}
    result = step("execute", error="mismatch", message="m", data={"outputs": [wrong]})
    assert step_error(result).message == f"m\ny differs by up to 0; {message}{text}"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (None, "target"),
        ("memory", "infra"),
        ("file", "infra"),
        ("metadata", "target"),
        ("?", "harness"),
    ],
)
def test_who_is_at_fault_is_known_without_words_too(error: str | None, cause: str) -> None:
    ended = end() | {"error": error} if error is not None else end(code=1)
    assert judge(run(START, begin(), ended, DONE, exit_code=1)).cause == cause


def test_of_ort_its_own_words_count_where_no_longer_ones_came() -> None:
    for data in ({}, {"status_text": None}, {"status_text": 7}):
        assert step_error(refused(data=data, logs=[])).message == TEXT
    silent = step_error(refused(message=None, logs=[]))
    assert (silent.message, silent.code) == ("", None)
    assert silent.ort == OrtCode(code=10, name="ORT_INVALID_GRAPH")
    chain = step_error(refused()).chain
    assert [(link.message, link.code) for link in chain] == [(NO_PD, None), (TEXT, 1002)]
