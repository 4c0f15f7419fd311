"""Explanations of any log: the numbers that count, the lines that are shown, and several processes.

Each failure has its own cause, and time tells what is near.
"""

from itertools import groupby, permutations

import pytest

from harness.diagnosis.explain_log import Explained, explain, symptoms_in
from harness.diagnosis.log_reader import LogText
from harness.diagnosis.rule import Rule, Symptoms, likely, possible
from harness.diagnosis.rule_sources import own_rules
from tests.snapshots import Snapshot
from tests.unit.diagnosis.failure_rows import lines_of

RULES = own_rules()


def log(*texts: str) -> list[LogText]:
    return [LogText(number, text) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    ("texts", "apis", "codes"),
    [
        # a number is anybody's unless a line names something of Qualcomm's, or a call
        (["error 1002"], (), ()),
        (["error 1002", "libQnnHtp.so"], (), (1002,)),
        (["error 1002", "QnnGraph_execute"], ("QnnGraph_execute",), (1002,)),
        (["error 1002", "failed to create context"], ("QnnContext_createFromBinary",), (1002,)),
        (["qnn err 1002", "err 5005, again err 1002", "err 1002"], (), (1002, 5005)),
        # what only ONNX Runtime's words tell to be a code
        (["qnn: QNN_COMMON_ERROR_MEM_ALLOC: no room"], (), (1002,)),
        (
            ["QnnGraph_execute, then QnnMem_register", "graph execution failed"],
            ("QnnGraph_execute", "QnnMem_register"),
            (),
        ),
    ],
)
def test_which_calls_and_numbers_of_a_log_count(
    texts: list[str], apis: tuple[str, ...], codes: tuple[int, ...]
) -> None:
    symptoms = symptoms_in(log(*texts, texts[0]))
    assert symptoms == Symptoms("", apis, codes, tuple(texts), tuple(texts))


@pytest.mark.parametrize(("between", "codes"), [(90, (1002,)), (250, ())])
def test_a_number_far_from_what_is_ours_counts_for_nothing(
    between: int, codes: tuple[int, ...]
) -> None:
    for first, last in (("libQnnHtp.so", "error 1002"), ("error 1002", "libQnnHtp.so")):
        assert symptoms_in([LogText(1, first), LogText(1 + between, last)]).codes == codes


def test_lines_that_mean_nothing_are_no_symptoms() -> None:
    assert symptoms_in(log("libQnnHtpV73Skel.so is 32-bit instead of 64-bit")) == Symptoms("")


CODED = (("one", 1002), ("other", 5005))
LINE = Rule("line", "w", "f", "a", (likely(text="skel"),), ("a/b",))
CODE = Rule("code", "v", "g", "a", (possible(codes=(1002, 1003)),), ("c/d#1", "e/f"))


def test_a_cause_shows_the_lines_that_tell_it() -> None:
    texts = ["qnn", "skel 1", "err 1002", "skel 1", "err 1100"]
    line, code = explain(log(*texts), [CODE, LINE]).diagnoses
    assert [(shown.number, shown.text) for shown in line.lines] == [(2, "skel 1"), (4, "skel 1")]
    assert [(shown.number, shown.text) for shown in code.lines] == [(3, "err 1002")]
    assert (line.id, line.confidence, line.words, line.fix) == ("line", "likely", "w", "f")
    assert code.threads == ("https://github.com/c/d/issues/1", "https://github.com/e/f")
    assert explain(log("nothing")).diagnoses == ()


def test_a_number_of_another_program_stands_behind_its_equals() -> None:
    first_rule, other = (
        Rule(name, "w", "f", "a", (possible(codes=(code,)),)) for name, code in CODED
    )
    explanation = explain(
        log("wifi: error 1002", "QnnGraph_finalize returned 5005"), [first_rule, other]
    )
    assert [cause.id for cause in explanation.diagnoses] == ["other", "one"]
    explanation = explain(
        log("qnn: error 1002", "QnnGraph_finalize returned 5005"), [first_rule, other]
    )
    assert [cause.id for cause in explanation.diagnoses] == ["one", "other"]


def test_of_many_lines_the_first_eight_are_shown() -> None:
    (cause,) = explain(log(*(f"skel {number}" for number in range(20))), [LINE]).diagnoses
    assert [line.number for line in cause.lines] == list(range(1, 9))


def test_numbers_of_the_dsp_have_their_names_and_meanings() -> None:
    # AEEStdErr.h of qualcomm/fastrpc: 6 is AEE_EUNABLETOLOAD; 5005 and 1002 are QNN's
    codes = (5005, 0x80000406, 0x80000FFE, 6, 1002, 0x8000048A)
    assert explain(log(*(f"qnn: error {code:#x}" for code in codes))).numbers == (
        "0x80000406 is AEE_EUNABLETOLOAD: Unable to load object/applet",
        "0x8000048a is AEE_ENOSESSION",
    )


NOTED = (
    'CDSP: Crashed Shared Object "./libx-htp-v68.so" load address : 0x20010000',
    "Direct firmware load for qcom/cdsp.mbn failed with error -2",
    "remoteproc0: error -22 initializing firmware qcom/cdsp.mbn",
    "cdsp is offline",
    "crw------- 1 root root 10, 1 adsprpc-smd",
    "can't start rproc cdsp: -110",
    "a300000.remoteproc: start timed out",
    "lowmemorykiller: Kill 'org.x' (25702), uid 10123, oom_score_adj 0 to free 4kB rss",
    "remoteproc1: can't start rproc gpdsp0: -22",
    "open fastrpc_shell_unsigned_3: No such file or directory",
    "rpcmem: /dev/dma_heap/system: No such file or directory",
    "Unable to load DLL 'onnxruntime-genai' or one",
    "Out of memory: Killed process 7 (qnn-net-run) total-vm:8kB",
    "qnn-net-run: error while loading shared libraries: libx.so.1: y",
    'library "libx.so" not found: needed by /x/libQnnHtp.so',
    "libGenie.so: cannot open shared object file",
    "Error 13: Unable to allocate memory dmaheap fd -1, heapid 25",
)


def test_what_a_line_adds_to_the_words_of_its_rule(snapshot: Snapshot) -> None:
    words = {rule.id: rule.cause for rule in RULES}
    added = []
    for text in NOTED:
        cause = explain(log(text, "DspTransport.openSession qnn_open failed, 1")).diagnoses[0]
        added.append(f"{cause.id}: {cause.words.removeprefix(f'{words[cause.id]}: ')}")
    assert added == snapshot


def test_a_number_of_fastrpc_is_none_of_qnn() -> None:
    text = "fastrpc_apps_user.c:1790: Error 0x3f1: remote_handle64_open failed for libQnnX.so"
    assert symptoms_in(log(text)).codes == ()
    assert symptoms_in(log("libQnnHtp.so: Error 0x3f1")).codes == (1009,)


def test_what_a_passed_test_expects_is_no_failure() -> None:
    line = 'tests/test_x.py::test_y - "Failed to create device_handle, error=14001" expected'
    assert not explain(log(f"PASS {line}")).diagnoses
    assert explain(log(f"FAIL {line}")).diagnoses


SKEL = "QnnDsp <E> DspTransport.openSession qnn_open failed, 0x80000406, prio 100"
OPENED = "apps_std_imp.c:1088: Successfully opened file /data/local/tmp/libQnnHtpV79Skel.so"
NO_SKEL = "QnnDsp <E> fopen failed for libQnnHtpV79Skel.so (No such file)"
VTCM = "QnnDsp <E> Request feature vtcm size with value 8388608 unsupported"
CRASH = "remoteproc remoteproc1: crash detected in cdsp: type fatal error"
UNSUPPORTED = "QnnDsp <E> QnnBackend_validateOpConfig failed 3110"
XNNPACK = "Replacing 42 out of 42 node(s) with delegate (TfLiteXNNPackDelegate) node"
PD = "QnnDsp <E> Failed to find available PD for contextId 56"
CREATED = "QnnDsp <E> QnnContext_createFromBinary returned 5005"


def logcat(*lines: tuple[int, str, str]) -> list[tuple[str, int | None]]:
    return [(line.id, line.process) for line in causes(*lines)]


def causes(*lines: tuple[int, str, str]) -> tuple[Explained, ...]:
    """Explain lines of logcat: each with its process, its time and its text."""
    text = "\n".join(
        f"12-07 {time} {pid:5} {pid:5} E tag : {message}" for pid, time, message in lines
    )
    return explain(lines_of(text)).diagnoses


def test_what_another_process_did_rightly_excuses_nothing() -> None:
    causes = logcat((10, "04:15:01.000", NO_SKEL), (11, "04:15:02.000", f"QnnDsp {OPENED}"))
    assert causes == [("skel-not-found", 10)]
    together = logcat((10, "04:15:01.000", NO_SKEL), (10, "04:15:02.000", f"QnnDsp {OPENED}"))
    assert together == []


def test_two_processes_fail_each_of_its_own_cause() -> None:
    causes = logcat((10, "04:15:01.000", SKEL), (11, "04:15:01.100", VTCM))
    assert causes == [("other-vtcm-size", 11), ("skel-not-found", 10)]


def test_the_same_line_of_two_processes_is_kept_for_both() -> None:
    lines = ((10, "04:15:01.000", SKEL), (11, "04:15:01.100", SKEL), (11, "04:15:01.200", VTCM))
    expected = [("other-vtcm-size", 11), ("skel-not-found", 11), ("skel-not-found", 10)]
    assert logcat(*lines) == expected
    assert [line.number for line in causes(*lines)[1].lines] == [2]


def test_a_crash_of_the_dsp_counts_near_the_failure() -> None:
    near = logcat((0, "04:14:50.000", CRASH), (10, "04:15:01.000", UNSUPPORTED))
    assert near[0] == ("dsp-restarted", 10)
    far = logcat((0, "02:14:50.000", CRASH), (10, "04:15:01.000", UNSUPPORTED))
    assert far == [("op-unsupported", 10), ("dsp-restarted", None)]


def test_a_crash_of_the_dsp_is_one_failure_of_all_its_processes() -> None:
    crashed = (0, "04:14:50.000", CRASH)
    alike = ((pid, "04:15:01.000", f"QnnDsp <I> session {pid}") for pid in (10, 11, 12))
    assert logcat(crashed, *alike) == [("dsp-restarted", 10)]
    # what else another process says stands below the crash, which is told once
    two = causes(crashed, (10, "04:15:01.000", UNSUPPORTED), (11, "04:15:01.000", CREATED))
    assert [(cause.id, cause.process, cause.failure) for cause in two] == [
        ("dsp-restarted", 10, 1),
        ("op-unsupported", 10, 1),
        ("context-refused", 11, 1),
    ]


def failures(*lines: tuple[int, str, str]) -> list[list[str]]:
    """The causes of each failure, the answer first."""
    return [
        [cause.id for cause in some]
        for _, some in groupby(causes(*lines), lambda cause: cause.failure)
    ]


@pytest.mark.parametrize("later", ["04:16:02.100", "05:15:00.000"])
def test_what_a_process_says_long_after_a_failure_is_another_one(later: str) -> None:
    first = ((10, "04:15:01.000", SKEL), (10, "04:15:02.000", UNSUPPORTED))
    assert failures(*first, (10, later, PD)) == [
        ["pd-exhausted"],
        ["skel-not-found", "op-unsupported"],
    ]
    # at once it is one failure, and so is what a process says again and again
    assert failures(*first, (10, "04:15:03.000", PD)) == [
        ["pd-exhausted", "skel-not-found", "op-unsupported"]
    ]
    assert failures(*first, (10, later, SKEL), (10, later, UNSUPPORTED)) == [
        ["skel-not-found", "op-unsupported"]
    ]


def test_a_number_long_after_a_failure_follows_from_it() -> None:
    last = (10, "05:15:00.000", "QnnDsp <E> QnnGraph_execute returned 6001")
    assert failures((10, "04:15:01.000", PD), last) == [["pd-exhausted", "stale-handle"]]


def test_failures_of_a_log_without_processes_are_told_apart_by_its_times() -> None:
    text = f"2026-12-07 04:15:01.000 {SKEL}\n2026-12-07 06:15:01.000 {PD}\n"
    causes = explain(lines_of(text)).diagnoses
    assert [(entry.id, entry.failure) for entry in causes] == [
        ("pd-exhausted", 1),
        ("skel-not-found", 2),
    ]


def test_a_number_of_a_process_that_says_nothing_of_ours_counts_for_nothing() -> None:
    lines = ((10, "04:15:01.000", CREATED), (44, "04:15:01.000", "error 1002 while scanning"))
    assert {id for id, _ in logcat(*lines)} == {"context-refused"}
    lines_of_process = (
        (10, "04:15:01.000", CREATED),
        (10, "04:15:01.000", "error 1002 while loading"),
    )
    assert {id for id, _ in logcat(*lines_of_process)} >= {"context-refused", "no-memory"}


def test_of_what_lines_suggest_the_first_of_a_process_is_the_cause() -> None:
    """By the time that they have, in whatever order they stand."""
    causes = {UNSUPPORTED: "op-unsupported", SKEL: "skel-not-found"}
    for first, second in permutations(causes):
        lines = ((10, "04:15:01.000", first), (10, "04:15:02.000", second))
        for text in (lines, lines[::-1]):
            assert [id for id, _ in logcat(*text)][:2] == [causes[first], causes[second]]


def test_what_any_program_says_of_its_cpu_is_a_cause_where_it_wants_the_npu_only() -> None:
    assert logcat((10, "04:15:01.000", XNNPACK)) == []
    two = logcat((10, "04:15:01.000", XNNPACK), (11, "04:15:01.100", "litert: using NPU"))
    assert two == []
    expected = ((10, "04:15:01.000", XNNPACK), (10, "04:15:01.100", "litert: using NPU"))
    assert logcat(*expected) == [("cpu-fallback", 10)]


def test_what_another_process_lacks_is_no_cause_of_a_failure() -> None:
    lines = (
        (10, "04:15:01.000", 'dlopen failed: library "libQnnSystem.so" not found'),
        (11, "04:15:01.100", "QnnDsp <E> Failed to create context from binary with err 0x138d"),
    )
    assert [(line.id, line.process, line.failure) for line in causes(*lines)] == [
        ("backend-not-loaded", 10, 1),
        ("context-refused", 11, 2),
    ]


def test_clients_beyond_those_that_are_told_are_no_cause_of_others() -> None:
    alike = [(pid, "04:15:01.000", f"QnnDsp <I> session {pid}") for pid in range(10, 14)]
    causes = logcat(*alike, (14, "04:15:01.100", VTCM))
    assert causes == [("other-vtcm-size", None)]


@pytest.mark.parametrize(("between", "count"), [(50, 1), (200, 2)])
def test_of_a_log_without_times_its_lines_tell_failures_apart(between: int, count: int) -> None:
    text = f"{SKEL}\n{'fine' * between}\n".replace("fine", "fine\n") + PD
    causes = explain(lines_of(text)).diagnoses
    assert len({entry.failure for entry in causes if entry.confidence != "possible"}) == count
