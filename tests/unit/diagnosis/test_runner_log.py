"""The output of `qnn_executor_runner`, on a terminal or in Android's log, read as steps."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.containers.artefact import Piece
from harness.diagnosis.runner_log import (
    OutputLine,
    is_delegate_line,
    is_logged_line,
    process_of,
    runner_transcript,
)
from harness.diagnosis.verdict import judge, step_error
from harness.engines.executorch import Program
from harness.probe.plan import Plan
from harness.probe.plan_runner import ProbeRun
from harness.probe.transcript import EARLIER_FAILED, LogLine, StepResult, Transcript, misfit
from harness.results.probe_figures import measure
from tests.snapshots import Snapshot

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
    heard = [OutputLine(text, index * 100) for index, text in enumerate(lines)]
    transcript = runner_transcript(plan(), heard, exit_code)
    failed = transcript.finished is not None and transcript.first_failure is not None
    code, signal = (1, None) if failed else (exit_code, signal)
    return ProbeRun(plan(), transcript, code, signal, False, False, b"", b"", 1.0)


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
    assert process_of([OutputLine(STARTED, 0)]) == 4711


@pytest.mark.parametrize("lines", [REFUSED, ANDROID])
def test_a_status_ends_the_step_it_came_in_with_qnns_code(lines: Sequence[str]) -> None:
    # the runner aborts itself, which is no crash
    verdict = judge(ended(lines, None, 6))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    error = verdict.error
    assert (error.api, error.code, error.context) == ("QnnContext_createFromBinary", 1002, 1)
    assert error.diagnosis is not None


@pytest.mark.parametrize(
    ("lines", "context"),
    [(LOADED, 1), ((STARTED,), None), ((*LOADED, f"{OWN}Method loaded."), None)],
)
def test_a_crash_has_the_step_that_it_came_in(
    lines: Sequence[str], context: int | None, snapshot: Snapshot
) -> None:
    verdict = judge(ended(lines, None, 11))
    assert verdict.outcome == "crashed"
    assert verdict.error.context == context
    assert verdict.error.message.partition("\n")[0] == snapshot


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
    assert (step.verb, step.code, step.symbol) == ("executorch-program", 0x23, "InvalidProgram")
    assert "Failed to parse" in step_error(step).message


def read(*lines: tuple[str, int], exit_code: int | None = None, contexts: int = 2) -> Transcript:
    """Read lines, each with its time (microseconds)."""
    return runner_transcript(plan(contexts), [OutputLine(*line) for line in lines], exit_code)


def step_of(*texts: str, exit_code: int | None = None) -> StepResult:
    """The step that ended badly, or in which the last of these was written."""
    log = read((STARTED, 0), *((text, 7) for text in texts), exit_code=exit_code)
    return log.first_failure or log.last_begun


def test_each_step_lasts_from_the_one_before_it_unless_the_runner_says_how_long() -> None:
    lines = [
        ("before its start, on a busy device", 200),
        (STARTED, 1000),
        (BEGINS, 1300),
        (DEVICE, 1350),
        ("1 inference took 9.9 ms, said while a context is loaded", 1400),
        (BEGINS, 1850),
        (f"{OWN}Method loaded.", 2850),
        (f"{OWN}Start inference (0)", 2900),
        ("1 inference took 2.500000 ms", 5400),
        (f"{OWN}Start inference (1)", 5500),
        (f"{OWN}Model executed successfully.", 7700),
        ("[ERROR] [Qnn ExecuTorch]: while it tidies up, status 0x1", 9000),
    ]
    log = read(*lines, exit_code=0)
    durations = [step.duration_us for step in log.steps]
    assert durations == [300, 50, 500, 1000, 2500, 2200, None, None]
    assert [len(step.logs) for step in log.steps] == [0, 1, 2, 1, 3, 2, 0, 0]
    assert log.steps[5].logs[-1] == LogLine(
        "info", "Model executed successfully. [qnn_executor_runner.cpp:310]", 7700
    )
    assert all(step.ok and step.skipped is None for step in log.steps)


def test_a_runner_that_was_heard_of_says_when_it_started_and_what_it_did() -> None:
    other = STARTED.replace("4711", "4712")
    log = read(("sh: a banner", 0), (STARTED, 0), (other, 5), exit_code=0)
    assert (log.start.pid, log.accepted.boot_us) == (4711, 1_234_560_000)
    assert log.steps[0].logs == [LogLine("debug", other, 5)]
    assert (
        process_of([OutputLine("sh: a banner", 0), OutputLine(STARTED, 1), OutputLine(other, 2)])
        == 4711
    )
    assert process_of([OutputLine("sh: a banner", 0)]) is None
    assert misfit(log, plan()) is None


def test_of_a_runner_that_was_ended_only_what_it_began_is_told() -> None:
    log = read(*((line, 0) for line in LOADED))
    assert [(step.verb, step.ended) for step in log.steps] == [
        ("executorch-program", True),
        ("executorch-device", True),
        ("executorch-context", True),
        ("executorch-context", False),
    ]
    assert log.finished is None
    silent = read((LOADED[1], 0))
    assert (silent.start, silent.accepted, silent.finished) == (None, None, None)
    assert not any(step.begun for step in silent.steps)


@pytest.mark.parametrize("exit_code", [0, 1, None])
def test_a_failure_stays_whatever_comes_behind_it(exit_code: int | None) -> None:
    log = read(*((line, 0) for line in (*REFUSED, *PASSED)), exit_code=exit_code)
    failed = log.first_failure
    assert (failed.step, failed.code, failed.symbol, len(failed.logs)) == (3, 1, "Internal", 4)
    assert [step.ok for step in log.steps] == [True] * 3 + [False] * 3 + [True] * 2
    assert [step.skipped for step in log.steps] == [None] * 4 + [EARLIER_FAILED] * 2 + [None] * 2
    assert misfit(log, plan()) is None


def test_steps_follow_the_log_forward_and_never_beyond_the_plan() -> None:
    # a program that loads more delegates than it has loads its last one
    assert step_of(*[BEGINS] * 9).step == 3
    for delegates, index in ((1, 1), (2, 3), (3, 4), (4, 5), (5, 5)):
        log = read((STARTED, 0), *[(BEGINS, 0)] * delegates, contexts=4)
        assert [step.step for step in log.steps if not step.ended] == [index]
    assert step_of(BEGINS, "what is said before the device").step == 1
    # what the device says again, beside another context, is no step back
    assert step_of(BEGINS, BEGINS, DEVICE).step == 3
    assert step_of(DEVICE).step == 0
    assert step_of(f"{OWN}Start inference (1)", BEGINS, f"{OWN}Method loaded.").step == 5
    beyond = read((STARTED, 0), (f"{OWN}Start inference (99)", 0), exit_code=0)
    assert (misfit(beyond, plan()), len(beyond.steps)) == (None, 8)


@pytest.mark.parametrize(
    ("message", "code", "symbol"),
    [
        # runtime/core/error.h of ExecuTorch
        ("failed with status 0x1", 0x1, "Internal"),
        ("failed with status 0x12", 0x12, "InvalidArgument"),
        ("failed with status 0x32", 0x32, "DelegateInvalidHandle"),
        ("failed with status 0x33", 0x33, "unknown"),
        # a status that says nothing went wrong is of an assertion that did
        ("assert failed: status 0x0", 1, "Internal"),
        ("Loading of method forward failed: 0x20", 0x20, "NotFound"),
        ("Failed to get method_meta for forward: 0xABC", 0xABC, "unknown"),
    ],
)
def test_a_status_has_the_name_that_executorch_gives_it(
    message: str, code: int, symbol: str
) -> None:
    step = step_of(message, exit_code=1)
    assert (step.step, step.code, step.symbol, step.ok) == (0, code, symbol, False)


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("[ERROR] [Qnn ExecuTorch]: a", "error", "a"),
        ("[FATAL] [Qnn ExecuTorch] a", "error", "a"),
        ("[WARNING] [Qnn ExecuTorch]: a", "warn", "a"),
        ("[VERBOSE] [Qnn ExecuTorch]: a", "debug", "a"),
        ("E 00:00:00.1 executorch:b.cpp:7] a", "error", "a [b.cpp:7]"),
        ("F 00:00:00.1 executorch:b.cpp:7] a", "error", "a [b.cpp:7]"),
        ("D 00:00:00.1 executorch:b.cpp:7] a", "debug", "a [b.cpp:7]"),
        ("E/tag( 123): a", "error", "a"),
        ("W/tag: a", "warn", "a"),
        # the level of Android's log is the one that counts
        ("E/tag( 123): [INFO] [Qnn ExecuTorch]: a", "error", "a"),
        ("whatever else", "debug", "whatever else"),
    ],
)
def test_a_line_has_a_level_and_a_text(line: str, level: str, text: str) -> None:
    assert step_of(line).logs == [LogLine(level, text, 7)]


@given(
    st.lists(st.one_of(st.sampled_from([*PASSED, *REFUSED, *ANDROID]), st.text(max_size=60))),
    st.sampled_from([0, 1, None]),
)
def test_whatever_it_prints_is_read(lines: list[str], exit_code: int | None) -> None:
    run = ended([STARTED, *lines], exit_code, None if exit_code is not None else 9)
    verdict = judge(run)
    assert verdict.cause in (None, "target", "config"), verdict
    assert (verdict.outcome == "passed") <= (exit_code == 0)
