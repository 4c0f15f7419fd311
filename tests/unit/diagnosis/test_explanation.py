"""Explanations of any log: the numbers that count, and the lines that are shown."""

from __future__ import annotations

import pytest

from harness.diagnosis.any_log import LogText
from harness.diagnosis.explanation import explain, symptoms_in
from harness.diagnosis.rule import Rule, Symptoms, likely, possible
from harness.diagnosis.rules import own_rules
from tests.snapshots import Snapshot

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
    words = {rule.id: rule.words for rule in RULES}
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
