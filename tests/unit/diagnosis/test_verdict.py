"""Verdicts: every way a probe process can end, with outcome, cause and error that must result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.diagnosis.error import ErrorRecord, signature
from harness.diagnosis.verdict import Verdict, judge
from harness.dsp.dsp import DspReply
from harness.lab.facts import Coprocessors
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import EXIT_BAD_PLAN, EXIT_DONE, EXIT_STEP_FAILED
from harness.results.record import NO_CAUSE
from tests.properties import reached, reaches
from tests.unit.diagnosis.probe_runs import DONE, LOAD, START, begin, end, log, run

NO_PD = "Failed to find available PD for contextId 56 on deviceId 0"
FAIL = {"code": 1002, "symbol": "QNN_COMMON_ERROR_MEM_ALLOC", "message": "Memory allocation."}


def test_a_plan_carried_out_has_passed() -> None:
    verdict = judge(run(START, begin(), end(), DONE))
    assert verdict == Verdict("passed")
    assert verdict.explanation() == "passed"


def test_a_failed_step_names_everything() -> None:
    lines = log(f" <E> {NO_PD}"), log("Fail to create, err 1002")
    events = (START, begin(), *lines, end(**FAIL), DONE)
    verdict = judge(run(*events, exit_code=1))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    error = verdict.error
    assert error is not None
    assert (error.api, error.code, error.hex, error.component) == (LOAD, 1002, "0x3ea", "common")
    assert error.symbol == "QNN_COMMON_ERROR_MEM_ALLOC"
    assert (error.step, error.context) == (3, 56)
    assert error.message == f"{NO_PD}\nFail to create, err 1002"
    assert error.signature == signature(LOAD, 1002, error.message)
    assert verdict.explanation() == (
        "failed in step 3, context 56: QnnContext_createFromBinary returned 1002 "
        f"(QNN_COMMON_ERROR_MEM_ALLOC, common)\n{NO_PD}\nFail to create, err 1002\n"
        f"diagnosis: {error.diagnosis.text() if error.diagnosis else None}"
    )


def test_without_error_lines_the_librarys_text_speaks() -> None:
    verdict = judge(run(START, begin(), log("only info", "info"), end(**FAIL), DONE))
    assert verdict.error is not None
    assert verdict.error.message == "Memory allocation."


def test_a_code_without_a_text_says_that_it_has_no_meaning() -> None:
    events = (START, begin(api="QnnGraph_execute", verb="execute"), end(code=6999), DONE)
    error = judge(run(*events)).error
    assert error is not None
    assert error.symbol == "QNN_GRAPH_MAX_ERROR"
    assert error.message == "end of the graph range, carries no cause"


def test_the_first_failed_step_decides() -> None:
    events = (START, begin(3), end(3, **FAIL), begin(9), end(9, code=5005), DONE)
    error = judge(run(*events)).error
    assert error is not None
    assert (error.step, error.code) == (3, 1002)


def test_benign_lines_and_repetitions_are_left_out() -> None:
    benign = log("expected magic number: 0x5678abcd but get: 0x2000000")
    events = (START, begin(), benign, log("why"), log("why"), end(**FAIL), DONE)
    error = judge(run(*events)).error
    assert error is not None
    assert error.message == "why"


def test_skipped_steps_are_no_failures() -> None:
    skip = {"event": "skip", "step": 4, "verb": "execute", "reason": "there is nothing to free"}
    assert judge(run(START, begin(), end(), skip, DONE)).outcome == "passed"


STRAY: dict[str, Any] = {"stray": b"\x1e{no event\n"}
CUT: dict[str, Any] = {"tail": b'\x1e{"event":"done","steps":1'}

ENDINGS = [
    # events, how, outcome, cause, what the message must hold
    (
        [START, begin()],
        {"signal": 11, "exit_code": None},
        "crashed",
        "target",
        "SIGSEGV, in step 3",
    ),
    ([START, begin()], {"exit_code": 139}, "crashed", "target", "ended by SIGSEGV"),
    ([START, begin()], {"signal": 9, "exit_code": None}, "crashed", "target", "low-memory killer"),
    ([START, begin()], {"signal": 60, "exit_code": None}, "crashed", "target", "by signal 60"),
    ([START, begin()], {"exit_code": 3}, "crashed", "target", "exit code 3 before its plan"),
    ([START, begin()], {"exit_code": 0}, "crashed", "target", "exit code 0 before its plan"),
    # only the probe ends so, and nothing was heard of it: its last words were lost on the way
    *(
        ([START, begin(), end()], {"exit_code": code}, "error", "infra", "its last output was lost")
        for code in (EXIT_DONE, EXIT_STEP_FAILED, EXIT_BAD_PLAN)
    ),
    (
        [START, begin()],
        {"timed_out": True, "exit_code": None},
        "hung",
        "target",
        "within 1.2 s, in",
    ),
    (
        [START, begin(), {"event": "deadline", "t_us": 5}],
        {"exit_code": 124},
        "hung",
        "target",
        "in step 3 (QnnContext_createFromBinary, context 56)",
    ),
    (
        [START, begin()],
        {"truncated": True, "exit_code": None},
        "hung",
        "target",
        "wrote without end",
    ),
    ([START], {"signal": 6, "exit_code": None}, "crashed", "target", "before its first step"),
    (
        [START, begin(), end()],
        {"signal": 6, "exit_code": None},
        "crashed",
        "target",
        "after step 3",
    ),
    (
        [START, begin(), end(), DONE],
        {"signal": 11, "exit_code": None},
        "crashed",
        "target",
        "ended by SIGSEGV, after its plan was done",
    ),
    (
        [START, begin(), end(code=1002), DONE],
        {"signal": 11, "exit_code": None},
        "failed",
        "target",
        "the process was ended by SIGSEGV after its plan",
    ),
    (
        [START, begin(api="QnnMem_register"), end(code=1000), DONE],
        {"signal": 6, "exit_code": None},
        "unsupported",
        None,
        "the process was ended by SIGABRT after its plan",
    ),
    ([], {"signal": 4, "exit_code": None}, "error", "infra", "did not start (SIGILL)"),
    ([], {"exit_code": 126, "stderr": b"Exec format error"}, "error", "infra", "Exec format error"),
    ([], {"timed_out": True, "exit_code": None}, "error", "infra", "did not start"),
    ([START, begin()], {"exit_code": 125}, "error", "infra", "could not write its results"),
    ([START, begin()], {"exit_code": 124}, "error", "infra", "could not write its results"),
    (
        [START, begin(), {"event": "deadline", "t_us": 5, "looks": 16, "unread": 3}],
        {"exit_code": 124},
        "error",
        "infra",
        "may have been blocked because its output was not read",
    ),
    (
        [START, begin(), {"event": "deadline", "t_us": 5, "looks": 16, "unread": 2}],
        {"exit_code": 124},
        "hung",
        "target",
        "within 1.2 s, in",
    ),
    (
        [{"event": "plan-error", "line": 3, "message": "unknown verb"}],
        {"exit_code": 2},
        "error",
        "harness",
        "refused its plan: line 3: unknown verb",
    ),
    (
        [{"event": "plan-error", "line": 0, "message": "99 bytes came", "damaged": True}],
        {"exit_code": 2},
        "error",
        "infra",
        "the plan was damaged on its way: line 0: 99 bytes came",
    ),
    ([START, begin(), DONE], {}, "error", "infra", "step 3 (context-load) began and did not end"),
    (
        [START, begin(), end(), DONE],
        {"plan": Plan((Step("noop"),))},
        "error",
        "infra",
        "it had a plan of 4 steps, which is not the one it was given",
    ),
    (
        [START, begin(), end(), DONE],
        {"exit_code": 1},
        "crashed",
        "target",
        "ended with exit code 1, after its plan was done",
    ),
    # who had done its plan could write, whatever it left with
    *(
        (
            [START, begin(), end(), DONE],
            {"exit_code": code},
            "crashed",
            "target",
            f"ended with exit code {code}, after its plan was done",
        )
        for code in (124, 125)
    ),
    ([START, begin(), end(code=1002), DONE], {"exit_code": 124}, "failed", "target", ""),
    # a shell tells of signals 1 to 64, which are all there are
    ([START, begin()], {"exit_code": 129}, "crashed", "target", "ended by SIGHUP"),
    ([START, begin()], {"exit_code": 192}, "crashed", "target", "ended by SIGRTMAX"),
    ([START, begin()], {"exit_code": 128}, "crashed", "target", "exit code 128 before its plan"),
    ([START, begin()], {"exit_code": 193}, "crashed", "target", "exit code 193 before its plan"),
    # what a process leaves with that had done its plan is no signal
    (
        [START, begin(), end(), DONE],
        {"exit_code": 139},
        "crashed",
        "target",
        "ended with exit code 139, after its plan was done",
    ),
    # bytes that are lost on the way, as many as a packet's header has, leave no other trace
    ([START, begin(), end()], CUT | {"exit_code": 1}, "error", "infra", "within an event"),
    ([START, begin(), end(), DONE], CUT, "error", "infra", "within an event"),
    ([START, begin(), end(code=1002), DONE], CUT | {"signal": 11}, "failed", "target", "SIGSEGV"),
    ([START, begin()], CUT | {"exit_code": 139}, "crashed", "target", "ended by SIGSEGV"),
    ([START, begin(), end(), DONE], STRAY, "error", "infra", "1 event was damaged on the way"),
    ([START, begin()], STRAY | {"exit_code": 139}, "error", "infra", "damaged on the way"),
    ([START, begin()], STRAY | {"timed_out": True}, "error", "infra", "damaged on the way"),
    ([START], STRAY | {"exit_code": 125}, "error", "infra", "damaged on the way"),
    ([START, begin()], STRAY | {"truncated": True}, "error", "infra", "damaged on the way"),
    (
        [{"event": "plan-error", "line": 3, "message": "unknown verb"}],
        STRAY | {"exit_code": 2},
        "error",
        "infra",
        "damaged on the way",
    ),
]


@pytest.mark.parametrize(("events", "options", "outcome", "cause", "text"), ENDINGS)
def test_endings(
    events: list[dict[str, Any]], options: dict[str, Any], outcome: str, cause: str, text: str
) -> None:
    verdict = judge(run(*events, **options))
    assert (verdict.outcome, verdict.cause) == (outcome, cause)
    assert verdict.error is not None
    assert text in verdict.error.message


def test_a_crash_names_the_step_it_happened_in_and_has_no_code() -> None:
    events = (START, begin(), log("last words"))
    error = judge(run(*events, signal=11, exit_code=None)).error
    assert error is not None
    assert (error.api, error.code, error.step, error.context) == (LOAD, None, 3, 56)
    assert error.message.endswith("\nlast words")


def test_a_crash_after_a_failure_is_a_crash_and_keeps_the_failure() -> None:
    events = (START, begin(3), log(NO_PD), end(3, **FAIL), begin(9, "QnnContext_free"))
    verdict = judge(run(*events, signal=11, exit_code=None))
    assert verdict.outcome == "crashed"
    assert verdict.error is not None
    assert verdict.error.api == "QnnContext_free"
    assert f"before that, step 3 failed: {LOAD}, context 56 1002: {NO_PD}" in verdict.error.message


OWN = [
    # what the probe found itself, outcome, cause, code
    ("dlopen", "libX.so: cannot open shared object file", "failed", "target", None),
    ("symbol", "libX.so has no QnnInterface_getProviders", "failed", "target", None),
    (
        "mismatch",
        "run 0: output 0 has 3 of 9 elements more than 0.1 from what is expected",
        "failed",
        "target",
        0,
    ),
    ("guard", "run 0 wrote 8 bytes outside of output 0", "failed", "target", 0),
    ("size", "a.raw has 4 bytes, its tensor has 8", "failed", "target", None),
    ("given", "inputs of the method: 2, files given: 1", "error", "config", None),
    ("metadata", "900000 graphs", "failed", "target", None),
    ("metadata", "binary info of unknown version 9", "error", "harness", None),
    ("file", "cannot open a.bin: No such file or directory", "error", "harness", None),
    ("file", "a.bin has 9 bytes, the limit is 4", "error", "harness", None),
    ("file", "cannot read a.bin: Input/output error", "error", "infra", None),
    ("file", "cannot write a.raw: No space left on device", "error", "infra", None),
    ("placement", "3 of 3 nodes are not on X", "failed", "target", None),
    ("no-device", "the plug-in offers no device", "failed", "target", None),
    ("memory", "cannot allocate 99 bytes: Cannot allocate memory", "error", "infra", None),
    ("unsupported", "tensor x: data type 0x0416, rank 4", "error", "harness", None),
    ("plan", "no such context", "error", "harness", None),
]


@pytest.mark.parametrize(("error", "message", "outcome", "cause", "code"), OWN)
def test_what_the_probe_found_itself(
    error: str, message: str, outcome: str, cause: str, code: int | None
) -> None:
    ended = end(code=None, error=error, message=message)
    verdict = judge(run(START, begin(), ended, DONE, exit_code=1))
    assert (verdict.outcome, verdict.cause) == (outcome, cause)
    assert verdict.error is not None
    assert verdict.error.code == code
    assert verdict.error.message == message


def test_outputs_that_differ_say_by_how_much_and_have_one_signature() -> None:
    def error(outputs: object) -> ErrorRecord:
        message = (
            "run 1: output 0 has 3 of 9 elements that are not what is expected, the first at 2"
        )
        ended = end(code=None, error="mismatch", message=message, data={"outputs": outputs})
        error_record = judge(run(START, begin(), ended, DONE, exit_code=1)).error
        assert error_record is not None
        return error_record

    right = {"index": 0, "name": "x", "elements": 9, "max_abs": 0, "beyond": 0, "nan": 0}
    first = {"first_index": 2, "first_value": 0.5, "first_expected": 0.25}
    wrong = {**right, "name": "y", "max_abs": 0.375, "beyond": 3, **first}
    record_of_error = error([right, wrong])
    assert record_of_error.message.splitlines()[1:] == [
        "y differs by up to 0.375; the first of them is 0.5, and 0.25 was expected"
    ]
    for strange in (None, 7, [7], [{"beyond": 1}], [{**wrong, "max_abs": "much"}]):
        assert error(strange).signature == record_of_error.signature
        assert "differs" not in error(strange).message


def test_a_library_that_cannot_be_opened_has_an_api() -> None:
    started = begin(api=None, verb="backend-load")
    ended = end(code=None, error="dlopen", message="no such file")
    error = judge(run(START, started, ended, DONE)).error
    assert error is not None
    assert error.api == "dlopen"


GROUP = "HTP Config option: 2 not supported"
TUNING = "TuningMode must be enabled on x86_64-linux-clang platforms"


@pytest.mark.parametrize(
    ("api", "code", "text", "outcome"),
    [
        ("QnnMem_register", 1000, "QnnMem API is not supported", "unsupported"),
        ("QnnMem_deRegister", 1000, "", "unsupported"),
        ("QnnMem_register", 8003, "mapping failed", "failed"),
        ("QnnContext_getProperty", 1000, "", "unsupported"),
        ("QnnContext_createFromBinary", 1000, "", "failed"),
        ("QnnContext_createFromBinary", 5010, GROUP, "unsupported"),
        ("QnnContext_createFromBinary", 5010, "Setting config Failed with err 0x1392", "failed"),
        ("QnnContext_createFromBinary", 1002, GROUP, "failed"),
        ("QnnContext_createFromBinaryListAsync", 1000, "", "unsupported"),
        ("QnnContext_createFromBinaryListAsync", 5000, "", "failed"),
        ("QnnBackend_create", 4000, TUNING, "unsupported"),
        ("QnnBackend_create", 4000, "No Snapdragon SOC detected", "failed"),
        ("QnnDevice_create", 4000, TUNING, "failed"),
        ("QnnBackend_create", 4001, TUNING, "failed"),
    ],
)
def test_what_a_target_cannot_do_is_no_failure(
    api: str, code: int, text: str, outcome: str
) -> None:
    verdict = judge(run(START, begin(api=api), log(text), end(code=code), DONE))
    assert verdict.outcome == outcome
    assert (verdict.cause is None) is (outcome == "unsupported")
    assert verdict.error is not None
    assert verdict.error.code == code


LACKING = DspReply("emulator", "invoke", "SIGILL", "vadd(sf,sf) in elementwise_add")
KERNEL = DspReply("kernel", "fastrpc_mmap", "0x2", "no more than 4 MB can be mapped")


@pytest.mark.parametrize(
    ("events", "options", "expected"),
    [
        ((START, begin(), end(**FAIL), DONE), {"exit_code": 1}, "the result: "),
        ((START, begin()), {"signal": 11, "exit_code": None}, "was ended by SIGSEGV"),
        ((START, begin()), {"timed_out": True, "exit_code": None}, "did not end within"),
        ((START, begin(), end(), DONE), {}, ""),
    ],
)
def test_what_an_emulator_lacks_is_never_a_failure(
    events: tuple[Any, ...], options: dict[str, Any], expected: str
) -> None:
    verdict = judge(run(*events, **options), dsp_replies=(KERNEL, LACKING))
    assert (verdict.outcome, verdict.cause) == ("unsupported", None)
    assert verdict.error is not None
    first = "the emulator cannot execute vadd(sf,sf) in elementwise_add (invoke: SIGILL)\n"
    assert verdict.error.message.startswith(first)
    assert expected in verdict.error.message
    assert "docs/dsp.md says what each emulator lacks" in verdict.error.message
    assert "build-dsp" not in verdict.error.message, "it may be in use already"
    # an answer of the kernel's place is as good as one of a phone's
    plain = judge(run(*events, **options))
    assert judge(run(*events, **options), dsp_replies=(KERNEL,)) == plain
    if plain.error is not None:
        assert (verdict.error.api, verdict.error.step) == (plain.error.api, plain.error.step)


def test_what_the_lab_lost_says_nothing_of_an_emulator() -> None:
    assert judge(run(exit_code=1), dsp_replies=(LACKING,)).outcome == "error"


def test_a_device_without_a_dsp_is_told_from_one_that_fails() -> None:
    skel = log(" <W> cannot open libcdsprpc.so", "warn"), log("Failed to load skel, error: 4000")
    events = (START, begin(api="QnnDevice_create"), *skel, end(code=14001), DONE)
    without = judge(run(*events), Coprocessors())
    assert (without.outcome, without.cause) == ("unsupported", None)
    failing = judge(run(*events), Coprocessors(dsp=("/dev/adsprpc-smd",)))
    assert (failing.outcome, failing.cause) == ("failed", "target")
    for verdict in (without, failing):
        assert verdict.error is not None
        assert [link.code for link in verdict.error.chain] == [None, 4000, 14001]
        assert verdict.error.first_cause == verdict.error.chain[0]
        assert "\nfirst cause: cannot open libcdsprpc.so\n" in verdict.explanation()


events = st.one_of(
    st.just(START),
    st.just(DONE),
    st.just({"event": "deadline", "t_us": 5}),
    st.builds(begin, st.integers(0, 2), st.sampled_from([None, LOAD, "QnnMem_register"])),
    st.builds(log, st.text(max_size=20), st.sampled_from(["error", "info"]), st.integers(0, 2)),
    st.builds(
        lambda step, code, error: end(step, code=code, error=error, message="m"),
        st.integers(0, 2),
        st.sampled_from([None, 0, 1000, 1002, 6999]),
        st.sampled_from([None, "file", "mismatch", "new kind"]),
    ),
)


@reaches(0.02)
@given(
    st.lists(events, max_size=8),
    st.sampled_from([None, 0, 1, 2, 124, 139]),
    st.sampled_from([None, 6, 9, 11]),
    st.booleans(),
)
def test_every_process_gets_a_verdict_that_fits_a_record(
    events: list[dict[str, Any]], exit_code: int | None, number: int | None, timed_out: bool
) -> None:
    probe_run = run(*events, exit_code=exit_code, signal=number, timed_out=timed_out)
    verdict = judge(probe_run)
    assert (verdict.cause is None) is (verdict.outcome in NO_CAUSE)
    assert (verdict.error is None) is (verdict.outcome == "passed")
    assert verdict.explanation()
    if verdict.outcome != "error":
        reached()
    if verdict.outcome == "passed":
        assert probe_run.transcript.done
        assert not any(step.failed for step in probe_run.transcript.steps)


@pytest.mark.parametrize(
    ("api", "code", "symbol", "component"),
    [
        (LOAD, 1002, "QNN_COMMON_ERROR_MEM_ALLOC", "common"),
        ("QnnProperty_hasCapability", 2000, "QNN_PROPERTY_ERROR_UNKNOWN_KEY", "property"),
        ("QnnBackend_validateOpConfig", 3110, None, "op_package"),
        ("QnnBackend_create", 4000, None, "backend"),
        (LOAD, 5005, "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY", "context"),
        ("QnnGraph_execute", 6004, None, "graph"),
        ("QnnTensor_createGraphTensor", 7001, None, "tensor"),
        ("QnnMem_register", 8001, None, "mem"),
        ("QnnSignal_create", 9001, None, "signal"),
        ("QnnError_getMessage", 10001, None, "error"),
        ("QnnLog_create", 11000, None, "log"),
        ("QnnProfile_create", 12001, None, "profile"),
        ("QnnDevice_create", 14001, "QNN_DEVICE_ERROR_INVALID_CONFIG", "device"),
        ("QnnSystemContext_getMetadata", 30010, None, "system"),
    ],
)
def test_a_code_is_named_by_the_library_or_else_by_the_table(
    api: str, code: int, symbol: str | None, component: str
) -> None:
    bare = judge(run(START, begin(api=api), end(code=code), DONE)).error
    assert bare is not None
    assert bare.symbol is not None
    assert symbol in (None, bare.symbol)
    assert bare.component == component
    ended = end(code=code, symbol="QNN_NEW_NAME", message="what the library says")
    named = judge(run(START, begin(api=api), ended, DONE)).error
    assert named is not None
    assert (named.symbol, named.message) == ("QNN_NEW_NAME", "what the library says")
