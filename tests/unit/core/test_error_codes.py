"""Codes: ranges, symbols as the libraries give them, numbers without a meaning."""

import pytest
from hypothesis import given, strategies as st

from harness.core.error_codes import (
    _RANGES,
    chain_of,
    describe,
    parse_ort_error,
    plain,
    qnn_code_in,
    symbol_table,
)
from tests.properties import reached, reaches
from tests.snapshots import Snapshot

COMPONENTS = {name for *_, name in _RANGES} | {"dsp", "none", "unknown"}


# As QnnError_getMessage of libQnnHtp.so answers, 2.47.0 and 2.51.0 alike.
@pytest.mark.parametrize(
    ("code", "component", "symbol"),
    [
        (0, "none", "QNN_SUCCESS"),
        (1002, "common", "QNN_COMMON_ERROR_MEM_ALLOC"),
        (4000, "backend", "QNN_BACKEND_ERROR_CANNOT_INITIALIZE"),
        (5005, "context", "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"),
        (6004, "graph", "QNN_GRAPH_ERROR_INVALID_TENSOR"),
        (8000, "mem", "QNN_MEM_ERROR_INVALID_ARGUMENT"),
        (10000, "error", "QNN_ERROR_INVALID_ARGUMENT"),
        (14000, "device", "QNN_DEVICE_ERROR_INVALID_HANDLE"),
        (77, "unknown", None),
        (16000, "unknown", None),
    ],
)
@pytest.mark.parametrize("api", [None, "QnnMem_register"])
def test_a_code_has_the_component_and_the_symbol_of_the_library(
    code: int, component: str, symbol: str | None, api: str | None
) -> None:
    info = describe(code, api=api)
    assert (info.component, info.symbol) == (component, symbol)


def test_the_api_decides_where_the_range_does_not() -> None:
    context = describe(30010, api="QnnSystemContext_getMetadata")
    dlc = describe(30010, api="QnnSystemDlc_createFromBinary")
    assert context.symbol == "QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY"
    assert dlc.symbol == "QNN_SYSTEM_DLC_ERROR_MALFORMED_BINARY"
    assert describe(1006, api="QnnBackend_create").symbols[0] == (
        "QNN_BACKEND_ERROR_UNSUPPORTED_PLATFORM"
    )


def test_numbers_without_a_meaning_say_so(snapshot: Snapshot) -> None:
    info = describe(6999, api="QnnGraph_execute")
    assert info.symbol == "QNN_GRAPH_MAX_ERROR"
    assert [info.note, describe(7000).note, describe(5555).note] == snapshot
    assert describe(1002).note is None


def test_only_the_low_16_bits_are_the_code() -> None:
    info = describe(0x0001_0000_03EA)
    assert (info.code, info.component, info.raw) == (1002, "common", 0x0001_0000_03EA)


@pytest.mark.parametrize(
    ("raw", "number", "name"),
    [
        (0x80000406, 6, "AEE_EUNABLETOLOAD"),
        (0x80000600, 0x200, "AEE_ERPC"),
        (0x8000042E, 0x2E, None),
        (0xFFFFFFFF_80000406, 6, "AEE_EUNABLETOLOAD"),
    ],
)
def test_errors_of_the_dsp(raw: int, number: int, name: str | None) -> None:
    info = describe(raw)
    assert (info.component, info.code, info.symbol) == ("dsp", number, name)


@given(st.integers(0, 2**64 - 1), st.one_of(st.none(), st.text(max_size=40)))
def test_every_number_has_an_answer(raw: int, api: str | None) -> None:
    info = describe(raw, api=api)
    assert info.component in COMPONENTS
    assert info.symbol is None or info.symbol in info.symbols
    assert int(info.hex, 16) == raw


def test_every_code_of_the_table_has_a_component_and_a_symbol() -> None:
    for code, symbols in symbol_table().items():
        info = describe(code)
        assert info.component != "unknown", code
        assert info.symbol in symbols


NODE = "Non-zero status code returned while running QNN_171631_257 node. Name:'QNN_171631_257_64' "
MISLEADING = (
    "This session contains graph nodes that are assigned to the default CPU EP, but fallback to "
    "CPU EP has been explicitly disabled by the user."
)
WRONG_CONFIG = "Failed to create device. Error: QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid config"


# With where each text was seen: an issue of microsoft/onnxruntime, or the libraries themselves.
@pytest.mark.parametrize(
    ("text", "code", "symbol"),
    [
        (
            f"{NODE}QNN graph execute error. Error code: 6031 at location "
            "sequential_executor.cc:572 ExecuteKernel",
            6031,
            None,
        ),  # 25334
        (" <E> Failed to finalize graph (id: 1) with err 1002", 1002, None),  # 21800
        ("QnnGraph_finalize done. status 0x3ea", 1002, None),  # 21800
        ("Failed to parse platform config: 14001", None, None),
        ("Error code: 0x138d", 5005, None),
        # of QNN's numbers the low 16 bits count, however many there are
        ("Error code: 0xffffffff0000138d", 5005, None),
        ("Error code: 0", None, None),
        ("qnn_open failed, error 0x80000406", 0x80000406, None),
        (WRONG_CONFIG, 14001, "QNN_DEVICE_ERROR_INVALID_CONFIG"),
        ("QNN_GRAPH_ERROR_OF_TOMORROW, error code 6022", 6022, None),
        # no codes of QNN's
        ("[ONNXRuntimeError] : 11 : EP_FAIL : QNN SetupBackend failed", None, None),
        ("qnn_backend_manager.cc:1002 LoadBackend failed", None, None),
        ("error: 1002.5 is no number of a code", None, None),
        ("Error code: 404", None, None),
        (MISLEADING, None, None),
        ("", None, None),
    ],
)
def test_the_code_in_a_text(text: str, code: int | None, symbol: str | None) -> None:
    assert qnn_code_in(text) == (None if code is None else (code, symbol))


def test_the_cause_comes_before_what_ort_says_last() -> None:
    logged = [
        "Unknown config socModel 0",
        "Failed to parse platform config: 14001",
        f"QNN SetupBackend failed {WRONG_CONFIG} [qnn_provider.cc:2290 GetCapability]",
        f"{MISLEADING} [inference_session.cc:2628 Initialize]",
    ]
    error = parse_ort_error(1, MISLEADING, logged)
    assert (error.code, error.name) == (1, "ORT_FAIL")
    assert (error.qnn_code, error.qnn_symbol) == (14001, "QNN_DEVICE_ERROR_INVALID_CONFIG")
    assert error.chain == (*logged[:2], f"QNN SetupBackend failed {WRONG_CONFIG}", MISLEADING)


def test_the_code_in_the_message_counts_more_than_one_logged_before() -> None:
    error = parse_ort_error(1, "QNN graph execute error. Error code: 6999", ["with err 1002"])
    assert error.qnn_code == 6999
    assert parse_ort_error(1, "no code", ["with err 1002", "with err 5005"]).qnn_code == 5005


def test_without_a_code_of_qnns_there_is_none() -> None:
    error = parse_ort_error(
        10, "Failed to load from EpContext model. Empty cache file encountered."
    )
    assert (error.name, error.qnn_code, error.qnn_symbol) == ("ORT_INVALID_GRAPH", None, None)
    assert parse_ort_error(77, "").name == "unknown"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (" <E> Failed to find available PD", "Failed to find available PD"),
        ("Something failed [onnx_ctx.cc:346 LoadQnnCtxFromOnnxGraph]", "Something failed"),
        (
            "/onnxruntime_src/onnxruntime/core/session/ep_plugin_provider_interfaces.cc:69 "
            "virtual std::unique_ptr<onnxruntime::IExecutionProvider> onnxruntime::Factory::"
            "CreateProvider(const OrtSessionOptions&, const OrtLogger&) Error creating execution "
            "provider: [ONNXRuntimeError] : 1 : FAIL : no",
            "Error creating execution provider: [ONNXRuntimeError] : 1 : FAIL : no",
        ),
        (
            "Non-zero status code returned while running Reshape node. Name:'r' Status Message: "
            "/onnxruntime_src/onnxruntime/core/providers/cpu/tensor/reshape_helper.h:47 onnxruntime"
            "::ReshapeHelper::ReshapeHelper(const onnxruntime::TensorShape&, onnxruntime::"
            "TensorShapeVector&, bool) input_shape_size == size was false. It cannot be reshaped",
            "Non-zero status code returned while running Reshape node. Name:'r' Status Message: "
            "input_shape_size == size was false. It cannot be reshaped",
        ),
        (
            "qnn_backend_manager.cc:56 onnxruntime::qnn::QnnBackendManager::GetProvider Unable to "
            "load backend",
            "Unable to load backend",
        ),
        ("at a.cc:7 it ends", "at a.cc:7 it ends"),
        ("a [list] of things", "a [list] of things"),
    ],
)
def test_a_line_without_where_it_comes_from(line: str, text: str) -> None:
    assert plain(line) == text


def test_a_chain_says_nothing_twice() -> None:
    inner = "Unable to load backend, error: /x/libQnnHtp.so: cannot open"
    chain = chain_of(
        [f"QNN SetupBackend failed {inner}", f"failed: {inner}", inner, inner, "", "end"]
    )
    assert chain == (f"QNN SetupBackend failed {inner}", f"failed: {inner}", "end")
    assert chain_of(["a\nb", "b"]) == ("a", "b")


def test_only_lines_of_twenty_characters_are_taken_for_parts_of_others() -> None:
    short, long = "x" * 18 + "y", "x" * 19 + "y"
    assert chain_of([short, f"a {short}"]) == (short, f"a {short}")
    assert chain_of([long, f"a {long}"]) == (f"a {long}",)
    assert chain_of([long, "a"]) == (long, "a")


def test_of_a_chain_of_more_than_forty_the_first_ones_and_the_last_are_kept() -> None:
    lines = tuple(f"line {number}." for number in range(41))
    assert chain_of(lines[:39]) == lines[:39]
    assert chain_of(lines[:40]) == lines[:40]
    assert chain_of(lines) == (*lines[:39], lines[40])


@reaches(0.05)
@given(st.text(), st.lists(st.text(max_size=40), max_size=8), st.integers(-5, 70000))
def test_any_text_is_taken(message: str, logged: list[str], code: int) -> None:
    error = parse_ort_error(code, message, logged)
    if error.chain:
        reached()
    assert all(line.strip() == line and line for line in error.chain)
    assert error.qnn_code is None or error.qnn_code >= 1000


def test_many_spaces_are_searched_in_linear_time() -> None:
    assert qnn_code_in(f"error{' ' * 20_000}x") is None
    assert qnn_code_in(f"error{' ' * 20_000}5000") == (5000, None)
