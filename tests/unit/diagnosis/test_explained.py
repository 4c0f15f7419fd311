"""Texts of verdicts, and what they keep of a process that printed little."""

from __future__ import annotations

from typing import Any

import pytest

from harness.diagnosis.error import ChainLink, Diagnosis, ErrorRecord, OrtCode
from harness.diagnosis.verdict import Verdict, judge
from tests.unit.diagnosis.probe_runs import DONE, LOAD, START, begin, end, log, run

ORT = OrtCode(code=10, name="ORT_INVALID_GRAPH")
KNOWN = Diagnosis(id="x", confidence="known", words="w")


def link(message: str) -> ChainLink:
    return ChainLink(message=message, source="log")


@pytest.mark.parametrize(
    ("outcome", "fields", "first", "more"),
    [
        # without step and call the first line says at once what is wrong
        ("error", {"message": "lost"}, "error: lost", []),
        ("failed", {"step": 0, "message": "m"}, "failed in step 0", ["m"]),
        ("failed", {"step": 0}, "failed in step 0", []),
        (
            "failed",
            {"step": 3, "context": 0, "api": LOAD},
            f"failed in step 3, context 0: {LOAD}",
            [],
        ),
        # where nobody knows the step, the context alone says nothing
        ("failed", {"context": 5, "api": LOAD}, f"failed: {LOAD}", []),
        (
            "failed",
            {"api": LOAD, "code": 1002, "symbol": "A", "component": "common"},
            f"failed: {LOAD} returned 1002 (A, common)",
            [],
        ),
        (
            "failed",
            {"api": LOAD, "code": 7, "component": "c"},
            f"failed: {LOAD} returned 7 (c)",
            [],
        ),
        ("failed", {"code": 7}, "failed returned 7", []),
        ("failed", {"api": "Run", "ort": ORT}, "failed: Run returned 10 (ORT_INVALID_GRAPH)", []),
        (
            "failed",
            {"api": "Run", "ort": ORT, "code": 1002, "symbol": "A"},
            "failed: Run returned 10 (ORT_INVALID_GRAPH), QNN 1002 (A)",
            [],
        ),
        (
            "failed",
            {"api": LOAD, "code": 0},
            f"failed: {LOAD} succeeded, and what it gave is wrong",
            [],
        ),
        ("crashed", {"api": LOAD, "code": 0}, f"crashed: {LOAD} returned 0", []),
        ("failed", {"message": "m", "first_cause": link("c")}, "failed: m", ["first cause: c"]),
        ("failed", {"message": "m: c", "first_cause": link("c")}, "failed: m: c", []),
        ("failed", {"message": "m", "first_cause": link("")}, "failed: m", []),
        ("failed", {"message": "m", "diagnosis": KNOWN}, "failed: m", ["diagnosis: x (known): w"]),
    ],
)
def test_what_is_said_to_a_person(
    outcome: Any, fields: dict[str, Any], first: str, more: list[str]
) -> None:
    error = ErrorRecord(signature="s", **fields)
    assert Verdict(outcome, None, error).explanation() == "\n".join([first, *more])


def test_what_is_no_verdict_still_has_its_place_and_a_reason() -> None:
    ended = end(code=None, error="memory", message=None)
    verdict = judge(run(START, begin(), ended, DONE, exit_code=1))
    assert verdict.error is not None
    assert (verdict.outcome, verdict.error.message, verdict.error.code) == ("error", "memory", None)
    assert (verdict.error.api, verdict.error.step, verdict.error.context) == (LOAD, 3, 56)
    silent = judge(run(exit_code=1)).error
    assert silent is not None
    assert (silent.api, silent.step, silent.context) == (None, None, None)
    assert silent.message == "the probe did not start (exit code 1)"


def test_an_error_of_the_lab_is_not_diagnosed_by_what_was_printed() -> None:
    ended = end(code=None, error="memory", message="none left")
    printed = {"exit_code": 1, "stderr": b"SSR detected\n"}
    verdict = judge(run(START, begin(), ended, DONE, **printed))
    assert verdict.error is not None
    assert verdict.error.diagnosis is None


@pytest.mark.parametrize(("behind", "is_found"), [(65536 - 13, True), (65536, False)])
def test_of_what_was_printed_the_last_64_kib_count(behind: int, is_found: bool) -> None:
    printed = b"SSR detected\n" + b"x" * behind
    error = judge(run(START, begin(), end(code=6031), DONE, stderr=printed)).error
    assert error is not None
    assert (error.diagnosis is not None) is is_found


def test_of_what_a_silent_process_printed_the_last_1000_characters_are_told() -> None:
    error = judge(run(exit_code=1, stderr=b"a" * 10 + b"b" * 1000 + b" \n")).error
    assert error is not None
    assert error.message == f"the probe did not start (exit code 1): {'b' * 1000}"


def test_a_crash_has_all_that_is_known_of_its_step() -> None:
    events = (START, begin(api=None), log("last words"), log("nothing", "info"))
    error = judge(run(*events, signal=11, exit_code=None)).error
    assert error is not None
    assert error.message == (
        "the process was ended by SIGSEGV, in step 3 (context-load, context 56)\nlast words"
    )
    assert (error.api, error.step, error.context) == ("context-load", 3, 56)
    assert [link.message for link in error.chain] == ["last words"]
    between = judge(run(START, begin(), end(), signal=11, exit_code=None)).error
    assert between is not None
    assert between.message == (
        f"the process was ended by SIGSEGV, after step 3 ({LOAD}, context 56)"
    )
    assert (between.api, between.step, between.context) == (None, None, None)
    assert (between.code, between.chain) == (None, ())


@pytest.mark.parametrize(("api", "message"), [(LOAD, LOAD), (None, "context-load")])
def test_a_crash_while_the_library_explains_its_code_keeps_the_code(
    api: str | None, message: str
) -> None:
    answer_event = {"event": "answer", "step": 3, "code": 5005}
    events = (START, begin(api=api) | {"context": None}, answer_event)
    error = judge(run(*events, signal=11, exit_code=None)).error
    assert error is not None
    assert error.message.splitlines() == [
        f"the process was ended by SIGSEGV, in step 3 ({message})",
        f"{message} had returned 5005",
    ]
    assert (error.api, error.code, error.context) == (message, 5005, None)
