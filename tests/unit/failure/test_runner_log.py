"""What `qnn_executor_runner` prints, on a terminal or in Android's log, read as steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.artefacts.artefact import Piece
from harness.bench.executorch import Program
from harness.failure.runner_log import (
    Heard,
    is_delegate_line,
    is_logged_line,
    process_of,
    runner_transcript,
)
from harness.failure.step_error import step_error
from harness.failure.verdict import judge
from harness.probe.plan import Plan
from harness.probe.run import ProbeRun
from harness.results.measurements import measure

OWN = "I 00:00:00.000418 executorch:qnn_executor_runner.cpp:310] "
DELEGATE = "[INFO] [Qnn ExecuTorch]: "
BEGINS = f"{DELEGATE}Deserializing processed data using QnnContextCustomProtocol"
DEVICE = f"{DELEGATE}Initialize Qnn backend parameters for Qnn executorch backend type 2"
STARTED = "qnn-harness-started 4711 1234.56"
LOADED = (STARTED, f"{OWN}Model file m.pte is loaded.", BEGINS, DEVICE, BEGINS)
PASSED = (
    *LOADED,
    f"{OWN}Method loaded.",
    f"{OWN}Start inference (0)",
    f"{OWN}1 inference took 2.500000 ms, avg 2.500000 ms",
    f"{OWN}Start inference (1)",
    f"{OWN}1 inference took 1.500000 ms, avg 1.500000 ms",
    f"{OWN}2 inference took 4.000000 ms, avg 2.000000 ms",
)
REFUSED = (
    *LOADED,
    "[ERROR] [Qnn ExecuTorch]: Can't create context from binary. Error 1002.",
    "E 00:00:00.1 executorch:method.cpp:128] Init failed for backend QnnBackend: 0x1",
    "F 00:00:00.1 executorch:qnn_executor_runner.cpp:1] In function main(), assert failed "
    "(method.ok()): Loading of method forward failed with status 0x1",
)
# the same as Android's log has it (`logcat -v brief`): no fatal line reaches the terminal
ANDROID = (
    STARTED,
    "I/Qnn ExecuTorch( 4711): [INFO] [Qnn ExecuTorch]: Deserializing processed data using Qnn",
    "I/Qnn ExecuTorch( 4711): Initialize Qnn backend parameters for Qnn executorch backend type 2",
    "I/Qnn ExecuTorch( 4711): Deserializing processed data using QnnContextCustomProtocol",
    "E/Qnn ExecuTorch( 4711): Can't create context from binary. Error 1002.",
    "F/ExecuTorch( 4711): Loading of method forward failed with status 0x1",
)


def plan(contexts: int = 2) -> Plan:
    pieces = [Piece(Path("m.pte"), 0, 1, f"forward/{n}", "context") for n in range(contexts)]
    program = Program(Path("m.pte"), "forward", tuple(pieces))
    return program.plan("/m.pte", ["/i"], [], tolerance=0, repeat=1)


def ended(lines: Sequence[str], exit_code: int | None, signal: int | None = None) -> ProbeRun:
    heard = [Heard(text, at * 100) for at, text in enumerate(lines)]
    told = runner_transcript(plan(), heard, exit_code)
    failed = told.finished is not None and told.first_failure is not None
    code, signal = (1, None) if failed else (exit_code, signal)
    return ProbeRun(plan(), told, code, signal, False, False, b"", b"", 1.0)


def test_lines_of_executorch_are_told_from_others() -> None:
    assert [is_logged_line(line) for line in (*ANDROID, "I/adsprpc( 4711): x", "")] == [
        *(False, True, True, True, True, True),
        *(False, False),
    ]
    assert is_delegate_line(DEVICE)
    assert not is_delegate_line(OWN)


def test_a_whole_run_has_all_steps_and_the_times_it_told() -> None:
    run = ended(PASSED, 0)
    assert judge(run).outcome == "passed"
    figures = measure(run.transcript)
    assert (figures["loaded"], figures["executed"]) == (2, 2)
    assert figures["execute_us"] == [2500, 1500]
    assert figures["load_us"] == [100, 100]
    assert process_of([Heard(STARTED, 0)]) == 4711


@pytest.mark.parametrize("lines", [REFUSED, ANDROID])
def test_a_status_ends_the_step_it_came_in_with_qnns_code(lines: Sequence[str]) -> None:
    # the runner aborts itself, which is no crash
    verdict = judge(ended(lines, None, 6))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    assert verdict.error is not None
    error = verdict.error
    assert (error.api, error.code, error.context) == ("QnnContext_createFromBinary", 1002, 1)
    assert error.diagnosis is not None


@pytest.mark.parametrize(
    ("lines", "outcome", "context", "says"),
    [
        (LOADED, "crashed", 1, "was ended by SIGSEGV"),
        ((STARTED,), "crashed", None, "in step 0"),
        ((*LOADED, f"{OWN}Method loaded."), "crashed", None, "in step 4"),
    ],
)
def test_a_crash_has_the_step_that_it_came_in(
    lines: Sequence[str], outcome: str, context: int | None, says: str
) -> None:
    verdict = judge(ended(lines, None, 11))
    assert verdict.outcome == outcome
    assert verdict.error is not None
    assert (verdict.error.context, says in verdict.error.message) == (context, True)


@pytest.mark.parametrize(
    "text",
    [
        "Number of inputs (2) mismatch with input files (1)",
        "Input(0) size mismatch. file bytes: 4, tensor bytes: 64",
    ],
)
def test_files_that_do_not_fit_are_the_users(text: str) -> None:
    verdict = judge(ended((*PASSED[:6], OWN.replace("I", "F", 1) + text), None, 6))
    assert (verdict.outcome, verdict.cause) == ("error", "config")


def test_what_never_started_is_no_verdict() -> None:
    verdict = judge(ended(("sh: nothing",), 97))
    assert (verdict.outcome, verdict.cause) == ("error", "infra")


def test_a_program_that_is_none_fails_as_such() -> None:
    lines = (STARTED, "E 00:00:00.1 executorch:x.cpp:1] Failed to parse model file m.pte")
    step = ended(lines, 1).transcript.first_failure
    assert step is not None
    assert (step.verb, step.code, step.symbol) == ("executorch-program", 0x23, "InvalidProgram")
    assert "Failed to parse" in step_error(step).message


@given(
    st.lists(st.one_of(st.sampled_from([*PASSED, *REFUSED, *ANDROID]), st.text(max_size=60))),
    st.sampled_from([0, 1, None]),
)
def test_whatever_it_prints_is_read(lines: list[str], exit_code: int | None) -> None:
    run = ended([STARTED, *lines], exit_code, None if exit_code is not None else 9)
    verdict = judge(run)
    assert verdict.cause in (None, "target", "config"), verdict
    assert (verdict.outcome == "passed") <= (exit_code == 0)
