"""Failed steps of ORT in a record: QNN's code, ORT's own, and all that was said."""

from __future__ import annotations

from typing import Any

import pytest

from harness.diagnosis.error import OrtCode
from harness.diagnosis.verdict import step_error
from harness.probe.transcript import LogLine, StepResult
from harness.report.summary import code_of
from tests.snapshots import Snapshot
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
    error_record = step_error(step("execute", 3, api="QnnGraph_execute", error=error, message="m"))
    assert (error_record.code, error_record.call) == (0, "QnnGraph_execute")
    assert code_of(record(outcome="failed", error=error_record)) == "outputs"


LOAD = "QnnContext_createFromBinary"


@pytest.mark.parametrize(
    ("fields", "logged", "message"),
    [
        ({"code": 5005}, [], ""),
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


WRONG = {"name": "y", "max_abs": 0.375, "beyond": 3}


def test_outputs_that_are_wrong_say_by_how_much(snapshot: Snapshot) -> None:
    def message(outputs: list[dict[str, Any]], error: str = "mismatch") -> str:
        data = {"outputs": outputs}
        return step_error(step("execute", error=error, message="m", data=data)).message

    messages = [
        message([WRONG | {"first_value": first, "first_expected": expected, "nan": nan}])
        for first, expected, nan in (
            (0.5, 0.25, 0),
            (2.7558593, 2.7558641, 0),
            (None, 0.25, 2),
            (0.5, None, 0),
        )
    ]
    assert messages == snapshot
    assert message([WRONG], "guard") == "m"


def test_of_ort_its_own_words_count_where_no_longer_ones_came() -> None:
    for data in ({}, {"status_text": None}, {"status_text": 7}):
        assert step_error(refused(data=data, logs=[])).message == TEXT
    silent = step_error(refused(message=None, logs=[]))
    assert (silent.message, silent.code) == ("", None)
    assert silent.ort == OrtCode(code=10, name="ORT_INVALID_GRAPH")
    chain = step_error(refused()).chain
    assert [(link.message, link.code) for link in chain] == [(NO_PD, None), (TEXT, 1002)]
