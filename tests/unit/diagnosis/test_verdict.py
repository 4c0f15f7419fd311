"""Verdicts: every way a probe process can end, with outcome, cause and error that must result."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.diagnosis.diagnosis import EARLIER
from harness.diagnosis.error_record import ChainLink, Diagnosis, ErrorRecord, OrtCode, signature
from harness.diagnosis.verdict import Verdict, judge
from harness.dsp.replies import DspReply
from harness.lab.facts import Coprocessors
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import EXIT_BAD_PLAN, EXIT_DONE, EXIT_STEP_FAILED
from harness.results.coverage import NO_CAUSE
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.diagnosis.probe_runs import DONE, LOAD, START, begin, end, log, run

NO_PD = "Failed to find available PD for contextId 56 on deviceId 0"
FAIL = {"code": 1002, "symbol": "QNN_COMMON_ERROR_MEM_ALLOC", "message": "Memory allocation."}


def test_a_plan_carried_out_has_passed() -> None:
    assert judge(run(START, begin(), end(), DONE)) == Verdict("passed")


def test_a_failed_step_names_everything(snapshot: Snapshot) -> None:
    lines = log(f" <E> {NO_PD}"), log("Fail to create, err 1002")
    events = (START, begin(), *lines, end(**FAIL), DONE)
    verdict = judge(run(*events, exit_code=1))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    error = verdict.error
    assert (error.api, error.code, error.hex, error.component) == (LOAD, 1002, "0x3ea", "common")
    assert error.symbol == "QNN_COMMON_ERROR_MEM_ALLOC"
    assert (error.step, error.context) == (3, 56)
    assert error.message == f"{NO_PD}\nFail to create, err 1002"
    assert error.signature == signature(LOAD, 1002, error.message)
    assert verdict.explanation() == snapshot


def test_without_error_lines_the_librarys_text_speaks() -> None:
    verdict = judge(run(START, begin(), log("only info", "info"), end(**FAIL), DONE))
    assert verdict.error.message == "Memory allocation."


def test_the_first_failed_step_decides() -> None:
    events = (START, begin(3), end(3, **FAIL), begin(9), end(9, code=5005), DONE)
    error = judge(run(*events)).error
    assert (error.step, error.code) == (3, 1002)


def test_skipped_steps_are_no_failures() -> None:
    skip = {"event": "skip", "step": 4, "verb": "execute", "reason": "there is nothing to free"}
    assert judge(run(START, begin(), end(), skip, DONE)).outcome == "passed"


STRAY: dict[str, Any] = {"stray": b"\x1e{no event\n"}
CUT: dict[str, Any] = {"tail": b'\x1e{"event":"done","steps":1'}
LATE: dict[str, Any] = {"timed_out": True, "exit_code": None}
LOADING = [START, begin()]
LOADED = [START, begin(), end()]
WHOLE = [*LOADED, DONE]
FAILED = [START, begin(), end(code=1002), DONE]
OVERDUE = {"event": "deadline", "t_us": 5}
BAD_PLAN = {"event": "plan-error", "line": 3, "message": "unknown verb"}


def died(number: int) -> dict[str, Any]:
    return {"signal": number, "exit_code": None}


def exited(code: int) -> dict[str, Any]:
    return {"exit_code": code}


ENDINGS: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    # events, how the process ended, outcome and cause
    (LOADING, died(11), "crashed target"),
    (LOADING, exited(139), "crashed target"),
    (LOADING, died(9), "crashed target"),
    (LOADING, died(60), "crashed target"),
    (LOADING, exited(0), "crashed target"),
    # only the probe ends so, and nothing was heard of it: its last words were lost on the way
    (LOADED, exited(EXIT_DONE), "error infra"),
    (LOADED, exited(EXIT_STEP_FAILED), "error infra"),
    (LOADED, exited(EXIT_BAD_PLAN), "error infra"),
    (LOADING, LATE, "hung target"),
    ([*LOADING, OVERDUE], exited(124), "hung target"),
    (LOADING, {"truncated": True, "exit_code": None}, "hung target"),
    ([START], died(6), "crashed target"),
    (LOADED, died(6), "crashed target"),
    (WHOLE, died(11), "crashed target"),
    (FAILED, died(11), "failed target"),
    ([START, begin(api="QnnMem_register"), end(code=1000), DONE], died(6), "unsupported None"),
    ([], died(4), "error infra"),
    ([], {"exit_code": 126, "stderr": b"Exec format error"}, "error infra"),
    ([], LATE, "error infra"),
    (LOADING, exited(125), "error infra"),
    (LOADING, exited(124), "error infra"),
    ([*LOADING, OVERDUE | {"looks": 16, "unread": 3}], exited(124), "error infra"),
    ([*LOADING, OVERDUE | {"looks": 16, "unread": 2}], exited(124), "hung target"),
    ([BAD_PLAN], exited(2), "error harness"),
    ([BAD_PLAN | {"line": 0, "damaged": True}], exited(2), "error infra"),
    ([*LOADING, DONE], {}, "error infra"),
    (WHOLE, {"plan": Plan((Step("noop"),))}, "error infra"),
    (WHOLE, exited(1), "crashed target"),
    # who had done its plan could write, whatever it left with
    (WHOLE, exited(124), "crashed target"),
    (WHOLE, exited(125), "crashed target"),
    (FAILED, exited(124), "failed target"),
    # a shell tells of signals 1 to 64, which are all there are
    (LOADING, exited(129), "crashed target"),
    (LOADING, exited(192), "crashed target"),
    (LOADING, exited(128), "crashed target"),
    (LOADING, exited(193), "crashed target"),
    # what a process leaves with that had done its plan is no signal
    (WHOLE, exited(139), "crashed target"),
    # bytes that are lost on the way, as many as a packet's header has, leave no other trace
    (LOADED, CUT | exited(1), "error infra"),
    (WHOLE, CUT, "error infra"),
    (FAILED, CUT | {"signal": 11}, "failed target"),
    (LOADING, CUT | exited(139), "crashed target"),
    (WHOLE, STRAY, "error infra"),
    (LOADING, STRAY | exited(139), "error infra"),
    (LOADING, STRAY | {"timed_out": True}, "error infra"),
    ([START], STRAY | exited(125), "error infra"),
    (LOADING, STRAY | {"truncated": True}, "error infra"),
    ([BAD_PLAN], STRAY | exited(2), "error infra"),
]


def test_endings(snapshot: Snapshot) -> None:
    verdicts = [judge(run(*events, **options)) for events, options, _ in ENDINGS]
    assert [f"{verdict.outcome} {verdict.cause}" for verdict in verdicts] == [
        expected for _, _, expected in ENDINGS
    ]
    assert [verdict.error and verdict.error.message.partition("\n")[0] for verdict in verdicts] == (
        snapshot
    )


def test_a_crash_has_all_that_is_known_of_its_step(snapshot: Snapshot) -> None:
    events = (START, begin(api=None), log("last words"), log("nothing", "info"))
    error = judge(run(*events, **died(11))).error
    assert error.message == snapshot
    assert (error.api, error.code, error.step, error.context) == ("context-load", None, 3, 56)
    assert [link.message for link in error.chain] == ["last words"]
    between = judge(run(*LOADED, **died(11))).error
    assert between.message == snapshot
    assert (between.api, between.step, between.context) == (None, None, None)
    assert (between.code, between.chain) == (None, ())


def test_a_crash_after_a_failure_is_a_crash_and_keeps_the_failure(snapshot: Snapshot) -> None:
    events = (START, begin(3), log(NO_PD), end(3, **FAIL), begin(9, "QnnContext_free"))
    verdict = judge(run(*events, **died(11)))
    assert verdict.outcome == "crashed"
    assert verdict.error.api == "QnnContext_free"
    assert verdict.error.message == snapshot
    # an earlier failure does not explain a crash
    assert EARLIER in verdict.error.message
    assert verdict.error.diagnosis is None


def test_a_crash_while_the_library_explains_its_code_keeps_the_code(snapshot: Snapshot) -> None:
    answer_event = {"event": "answer", "step": 3, "code": 5005}
    for api, name in ((LOAD, LOAD), (None, "context-load")):
        events = (START, begin(api=api) | {"context": None}, answer_event)
        error = judge(run(*events, **died(11))).error
        assert (error.api, error.code, error.context) == (name, 5005, None)
        assert error.message == snapshot


def test_of_what_was_printed_the_last_1000_characters_are_told_and_64_kib_diagnosed() -> None:
    silent = judge(run(exit_code=1, stderr=b"a" * 10 + b"b" * 1000 + b" \n")).error
    assert silent.message.endswith(f": {'b' * 1000}")
    for behind, is_found in ((65536 - 13, True), (65536, False)):
        printed = b"SSR detected\n" + b"x" * behind
        error = judge(run(START, begin(), end(code=6031), DONE, stderr=printed)).error
        assert (error.diagnosis is not None) is is_found


def test_an_error_of_the_lab_is_not_diagnosed_by_what_was_printed() -> None:
    ended = end(code=None, error="memory", message="none left")
    verdict = judge(run(START, begin(), ended, DONE, exit_code=1, stderr=b"SSR detected\n"))
    assert verdict.error.diagnosis is None
    assert (verdict.error.api, verdict.error.step, verdict.error.context) == (LOAD, 3, 56)


ORT = OrtCode(code=10, name="ORT_INVALID_GRAPH")
KNOWN = Diagnosis(id="x", confidence="known", words="w")
CAUSE = ChainLink(message="c", source="log")


TOLD: list[tuple[Any, dict[str, Any]]] = [
    ("error", {"message": "lost"}),
    ("failed", {"step": 0, "message": "m"}),
    ("failed", {"step": 0}),
    ("failed", {"step": 3, "context": 0, "api": LOAD}),
    ("failed", {"context": 5, "api": LOAD}),
    ("failed", {"api": LOAD, "code": 1002, "symbol": "A", "component": "common"}),
    ("failed", {"api": LOAD, "code": 7, "component": "c"}),
    ("failed", {"code": 7}),
    ("failed", {"api": "Run", "ort": ORT}),
    ("failed", {"api": "Run", "ort": ORT, "code": 1002, "symbol": "A"}),
    ("failed", {"api": LOAD, "code": 0}),
    ("crashed", {"api": LOAD, "code": 0}),
    ("failed", {"message": "m", "first_cause": CAUSE}),
    ("failed", {"message": "m: c", "first_cause": CAUSE}),
    ("failed", {"message": "m", "first_cause": ChainLink(message="", source="log")}),
    ("failed", {"message": "m", "diagnosis": KNOWN}),
]


def test_what_is_said_to_a_person(snapshot: Snapshot) -> None:
    assert [
        Verdict(outcome, None, ErrorRecord(signature="s", **fields)).explanation()
        for outcome, fields in TOLD
    ] == snapshot


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
    ("?", "", "error", "harness", None),
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
    assert verdict.error.code == code
    assert verdict.error.message == (message or error)


def test_outputs_that_differ_say_by_how_much_and_have_one_signature(snapshot: Snapshot) -> None:
    def error(outputs: object) -> ErrorRecord:
        message = (
            "run 1: output 0 has 3 of 9 elements that are not what is expected, the first at 2"
        )
        ended = end(code=None, error="mismatch", message=message, data={"outputs": outputs})
        return judge(run(START, begin(), ended, DONE, exit_code=1)).error

    right = {"index": 0, "name": "x", "elements": 9, "max_abs": 0, "beyond": 0, "nan": 0}
    first = {"first_index": 2, "first_value": 0.5, "first_expected": 0.25}
    wrong = {**right, "name": "y", "max_abs": 0.375, "beyond": 3, **first}
    record_of_error = error([right, wrong])
    assert record_of_error.message == snapshot
    for strange in (None, 7, [7], [{"beyond": 1}], [{**wrong, "max_abs": "much"}]):
        assert error(strange).signature == record_of_error.signature
        assert "\n" not in error(strange).message


def test_what_a_target_cannot_do_is_no_failure() -> None:
    for code, outcome in ((1000, "unsupported"), (8003, "failed")):
        events = (START, begin(api="QnnMem_register"), log("refused"), end(code=code), DONE)
        verdict = judge(run(*events))
        assert verdict.outcome == outcome
        assert (verdict.cause is None) is (outcome == "unsupported")
        assert verdict.error.code == code


LACKING = DspReply(
    by="emulator", call="invoke", answer="SIGILL", words="vadd(sf,sf) in elementwise_add"
)
KERNEL = DspReply(
    by="kernel", call="fastrpc_mmap", answer="0x2", words="no more than 4 MB can be mapped"
)


@pytest.mark.parametrize(
    ("events", "options"), [(FAILED, exited(1)), (LOADING, died(11)), (LOADING, LATE), (WHOLE, {})]
)
def test_what_an_emulator_lacks_is_never_a_failure(
    events: list[dict[str, Any]], options: dict[str, Any], snapshot: Snapshot
) -> None:
    verdict = judge(run(*events, **options), dsp_replies=(KERNEL, LACKING))
    assert (verdict.outcome, verdict.cause) == ("unsupported", None)
    assert verdict.error.message == snapshot
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
        assert [link.code for link in verdict.error.chain] == [None, 4000, 14001]
        assert verdict.error.first_cause == verdict.error.chain[0]


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


def test_a_code_is_named_by_the_library_or_else_by_the_table() -> None:
    bare = judge(run(START, begin(), end(code=5005), DONE)).error
    assert (bare.symbol, bare.component) == ("QNN_CONTEXT_ERROR_CREATE_FROM_BINARY", "context")
    ended = end(code=5005, symbol="QNN_NEW_NAME", message="what the library says")
    named = judge(run(START, begin(), ended, DONE)).error
    assert (named.symbol, named.message) == ("QNN_NEW_NAME", "what the library says")
