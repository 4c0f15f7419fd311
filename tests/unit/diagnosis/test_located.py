"""The place of a failure in a log: line, component, phase, call, and the code as it is meant there.

`failure-logs-3.tsv` has threads of public trackers that came after the table of causes.
"""

import io
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from harness.core.error_codes import DSP_FIRST, GPU_ERRORS, describe, dsp_errors, symbol_table
from harness.diagnosis.explain_log import Explanation, explain
from harness.diagnosis.located import code_in
from harness.diagnosis.log_reader import read_log
from tests.unit.diagnosis.failure_rows import lines_of
from tests.unit.diagnosis.test_field_logs import NOISE, reports

DEVICE = "Failed to create device: 14001"
TRANSPORT = "QnnDsp <E> DspTransport.openSession qnn_open failed, 0x80000406, prio 100"


def explained(*lines: str) -> Explanation:
    return explain(lines_of("\n".join(lines)))


@pytest.mark.parametrize("row", reports("failure-logs-3.tsv"), ids=lambda row: row["thread"])
def test_a_reported_failure_is_located(row: dict[str, str]) -> None:
    explanation = explained(row["excerpt"])
    located = explanation.located
    assert located is not None
    symbol = located.code.symbol if located.code else None
    facts = (explanation.level, located.component, located.phase or "", symbol or "")
    assert facts == (row["level"], row["component"], row["phase"], row["code"])
    assert [cause.id for cause in explanation.diagnoses][:1] == row["cause"].split()
    assert located.in_scope == (located.component not in ("opencl", "llama.cpp", "other"))


def notations() -> Iterator[tuple[str, str, str]]:
    """A line for each code in each notation, with its symbol and component."""
    for code, symbols in symbol_table().items():
        info = describe(code)
        assert info.symbol
        for digits in (f"{code}", f"{code:#x}", f"{code:#018x}", f"-{code}"):
            yield f"QnnDsp <E> x failed with error code: {digits}", info.symbol, info.component
        for symbol in symbols:
            yield f"QnnDsp <E> x failed: {symbol}", symbol, info.component
    for code, name in GPU_ERRORS.items():
        for digits in (f"({code})", f"{name}({code})", f"error code {code:#x}", name):
            yield f"GPU ERROR: {digits} - x", name, "gpu"
    for number, (name, _) in dsp_errors().items():
        code = DSP_FIRST + number
        wide = (1 << 64) - (1 << 32) + code
        for digits in (
            f"{code:#x}",
            f"{code}",
            f"{code - (1 << 32)}",
            f"{wide}",
            f"{wide:#x}",
            name,
        ):
            yield (
                f"fastrpc_apps_user.c:1622: Error {digits}: remote_handle64_open failed",
                name,
                "dsp",
            )
            yield f"QnnDsp <E> qnn_open failed, {digits}, prio 100", name, "dsp"
        yield f"remote_handle64_open failed with error {number:#x}", name, "dsp"


@given(st.sampled_from([*notations()]), st.sampled_from(["", "12-07 04:15:01.000 7 7 E tag : "]))
def test_a_code_in_any_notation_is_told_as_its_line_means_it(
    told: tuple[str, str, str], prefix: str
) -> None:
    located = explained(prefix + told[0]).located
    assert located
    assert located.code
    assert (located.code.symbol, located.code.component) == told[1:]


@pytest.mark.parametrize(
    "digits", ["0x80000406", "0xffffffff80000406", "-2147482618", "2147484678"]
)
def test_a_code_shows_a_cause_in_any_notation(digits: str) -> None:
    causes = explained(f"remote_handle64_open failed: {digits}").diagnoses
    assert [cause.id for cause in causes] == ["skel-not-found"]


def test_every_code_has_every_notation() -> None:
    wrong = [
        (line, code)
        for line, symbol, component in notations()
        if (code := code_in(line)) is None or (code.symbol, code.component) != (symbol, component)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "symbol", "component"),
    [
        ("QnnDsp <E> Failed to x with err 0x3f1", "QNN_COMMON_ERROR_LOADING_BINARIES", "common"),
        ("fastrpc_apps_user.c:7: Error 0x3f1: remote_handle64_open failed", None, None),
        ("apps_std_imp.c:695:Error 45: fopen failed for x", "AEE_ENOSUCHFILE", "dsp"),
        ("QnnDsp <E> IDspTransport: Unknown rpc status 0x16", "AEE_ERESOURCENOTFOUND", "dsp"),
        ("ggml-hex: failed to get URI for session 0 : error 0x14", "AEE_EUNSUPPORTED", "dsp"),
        ("remoteproc0: request_firmware failed for cdsp.mbn: -2", "ENOENT", "linux"),
        ("fastrpc_apps_user.c:3: Error 0xd: open_shell failed for domain 3", "EACCES", "linux"),
        ("GPU ERROR: GPU_ERROR_DOES_NOT_EXIST(10005) - x", "GPU_ERROR_DOES_NOT_EXIST", "gpu"),
        ("graphFinalize failed, err=0x3ea", "QNN_COMMON_ERROR_MEM_ALLOC", "common"),
        ("QnnDsp <E> graph_prepare.cc:1574::ERROR:x failed", None, None),
        ("QnnDsp <E> failed, size 4000 KB, limit: 5000 bytes", None, None),
        ("QnnDsp <E> x failed with error code: 12", None, None),
        ("QnnDsp <E> x failed with error code: 30001", None, "system"),
    ],
)
def test_the_same_number_means_what_its_component_means(
    line: str, symbol: str | None, component: str | None
) -> None:
    code = code_in(line)
    assert (code and code.symbol, code and code.component) == (symbol, component)


def test_a_line_has_the_call_and_the_code_of_those_that_follow_from_it() -> None:
    stub = 'library "libQnnHtpV79Stub.so" not found'
    lines = (stub, "QnnDsp <E> QnnDevice_create failed with 14001")
    located = explained(*(f"12-07 04:15:01.000 10 11 E tag : {line}" for line in lines)).located
    assert located
    assert located.code
    facts = (located.line, located.component, located.phase, located.api, located.process)
    assert facts == (1, "linker", "link", "QnnDevice_create", 10)
    assert (located.code.code, located.code.hex, located.code.meaning) == (
        *(14001, "0x36b1"),
        "invalid config",
    )


def test_a_crash_is_where_its_frames_are() -> None:
    frames = ("libc.so (abort+1)", "libQnnHtp.so (QnnGraph_execute+12)")
    frames = [f"01-01 00:00:00.1 9 9 F DEBUG : #00 pc 000abc  /data/app/a/{it}" for it in frames]
    located = explained("01-01 00:00:00.1 7 7 F libc : Fatal signal 11 (SIGSEGV)", *frames).located
    assert located
    facts = (located.line, located.component, located.phase, located.api, located.process)
    assert facts == (1, "qnn", "execute", "QnnGraph_execute", 7)


def test_a_number_of_the_kernel_is_an_errno_in_lines_about_fastrpc_too() -> None:
    located = explained("[   12.345678] adsprpc: fastrpc_init_process failed err -13").located
    assert located
    assert located.code
    assert (located.component, located.code.symbol) == ("fastrpc", "EACCES")


def test_the_place_is_that_of_the_cause_that_is_told() -> None:
    first = "12-07 04:15:01.000 10 10 E tag : QnnDsp <E> x failed"
    located = explained(first, f"12-07 04:15:02.000 11 11 E tag : {TRANSPORT}").located
    assert located
    assert (located.line, located.process) == (2, 11)
    # a cause that no line of a failure shows stands at its own line
    located = explained("W adb: x", "W : QnnDsp <W> SSR Detected").located
    assert located
    assert (located.line, located.component) == (2, "qnn")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["all is well", "QNN_GRAPH_NO_ERROR", "0 errors"],
        [*filter(None, NOISE)],
        ["QnnDsp <W> Failed to x", "W/fastrpc (  7): open_shell failed", "[WARNING] qnn: x failed"],
        ["QnnDsp <V> ready", "E WifiHAL: association failed"],
        ["qnn: 3 passed, failed: 0", 'qnn {"error": null}', "qnn: no unsupported nodes"],
        ["qnn: max error 0.1, error tolerance: 1", "QNN_LOG_LEVEL_ERROR"],
        ["install qnn-error-dev", "qnn/lib/error.js"],
        ["warning: qnn: invalid option", "INFO:qnn: failed builds are retried"],
        [
            "Direct firmware load for qcom/cdsp.mbn failed with error -2",
            "cdsp: Brought out of reset",
        ],
    ],
)
def test_what_is_harmless_is_nothing_wrong(lines: list[str]) -> None:
    assert explained(*lines) == Explanation(level="nothing", diagnoses=())


@pytest.mark.parametrize(
    ("lines", "line", "component"),
    [
        (["gcc: fatal error: no input files"], 1, "other"),
        (["ggml_opencl: Adreno", "x failed"], 2, "opencl"),
        (["QnnDsp <V> ready", "F libc: Fatal signal 11 (SIGSEGV)"], 2, "other"),
        (["./qnn-net-run --model m", "Segmentation fault"], 2, "qnn"),
        (['dlopen failed: library "libother.so" not found'], 1, "other"),
        (["x" * 50_000, "panic: x", *["y error"] * 100], 2, "other"),
        (["qcom_q6v5_pas 4.remoteproc: fatal error received: modem_main.c:5"], 1, "other"),
        (["/home/me/qnn-htp/genie/a.c:1: error: x"], 1, "other"),
        (["[ERROR] the genie odd", "[ERROR] x"], 1, "genie"),
        (["ok", "ValueError: 7"], 2, "other"),
        (["a error", "b error", "libQnnHtp: it failed"], 3, "qnn"),
    ],
)
def test_failures_of_others_are_told_as_such(lines: list[str], line: int, component: str) -> None:
    explanation = explained(*lines)
    assert explanation.diagnoses == ()
    assert explanation.located
    assert (explanation.located.line, explanation.located.component) == (line, component)


@given(st.lists(st.sampled_from(["error: x", "abort: y", "QnnDsp <E> failed", DEVICE, "z"])))
def test_lines_are_found_wherever_they_stand(lines: list[str]) -> None:
    located = explained(*lines).located
    failing = [index for index, line in enumerate(lines, 1) if line != "z"]
    ours = [index for index in failing if lines[index - 1] in ("QnnDsp <E> failed", DEVICE)]
    assert (located.line if located else None) == next(iter(ours or failing), None)


def test_of_a_huge_log_a_few_failures_of_others_are_kept() -> None:
    words = (f"{a}{b} failed" for a in "abcdefghijkl" for b in "abcdefghijkl")
    log = read_log(io.BytesIO("\n".join([*words, "segfault"]).encode()))
    assert len(log.lines) <= 40
    assert not any(line.for_rules for line in log.lines)
