"""Failures of ORT, taken apart: QNN's code out of real texts, and the whole chain."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.core.codes import (
    MAX_CHAIN,
    ORT_CODES,
    chain_of,
    parse_ort_error,
    plain,
    qnn_code_in,
)
from tests.properties import reached, reaches

NODE = "Non-zero status code returned while running QNN_171631_257 node. Name:'QNN_171631_257_64' "
MISLEADING = (
    "This session contains graph nodes that are assigned to the default CPU EP, but fallback to "
    "CPU EP has been explicitly disabled by the user."
)
FINISHED = "QnnGraph_finalize done. status 0x3ea"
WRONG_CONFIG = "Failed to create device. Error: QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid config"


# With where each text was seen: an issue of microsoft/onnxruntime, or the libraries themselves.
@pytest.mark.parametrize(
    ("text", "code", "symbol"),
    [
        (f"{NODE}Status Message: QNN graph execute error. Error code: 6999", 6999, None),  # 24004
        (f"{NODE}Status Message: QNN graph execute error. Error code: 6001", 6001, None),  # 25422
        (f"{NODE}QNN graph execute error. Error code: 1100", 1100, None),  # 22645
        (
            f"{NODE}QNN graph execute error. Error code: 6031 at location "
            "sequential_executor.cc:572 ExecuteKernel",
            6031,
            None,
        ),  # 25334
        (" <E> Failed to finalize graph (id: 1) with err 1002", 1002, None),  # 21800
        (FINISHED, 1002, None),  # 21800
        ("Fail to create context from binary with err 1002", 1002, None),
        ("Failed to create context from binary with err 0x3ea", 1002, None),
        ("Fail to get context blob with err 5000", 5000, None),
        ("Failed to parse platform config: 14001", None, None),
        ("Error code: 0x138d", 5005, None),
        ("Error code: 0X138D", 5005, None),
        # of QNN's numbers the low 16 bits count, however many there are
        ("Error code: 0xffffffff0000138d", 5005, None),
        ("Error code: 0", None, None),
        ("qnn_open failed, error 0x80000406", 0x80000406, None),
        (WRONG_CONFIG, 14001, "QNN_DEVICE_ERROR_INVALID_CONFIG"),
        (
            "contextCreateFromBinary failed. Error: QNN_COMMON_ERROR_MEM_ALLOC: Memory allocation",
            1002,
            "QNN_COMMON_ERROR_MEM_ALLOC",
        ),
        (
            "Failed to initialize backend. Error: QNN_BACKEND_ERROR_CANNOT_INITIALIZE: Backend",
            4000,
            "QNN_BACKEND_ERROR_CANNOT_INITIALIZE",
        ),
        ("QNN_GRAPH_ERROR_OF_TOMORROW, error code 6022", 6022, None),
        # no codes of QNN's
        ("[ONNXRuntimeError] : 11 : EP_FAIL : QNN SetupBackend failed", None, None),
        ("OrtEp has invalid ort_version_supported=0 (expected at least 22).", None, None),
        ("qnn_backend_manager.cc:1002 LoadBackend failed", None, None),
        ("error: 1002.5 is no number of a code", None, None),
        ("dlopen error 2024/11", None, None),
        ("Error code: 404", None, None),
        ("context size estimate 66595840", None, None),
        ("error 99999999", None, None),
        ("Memory of 5005 bytes", None, None),
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


def test_names_are_those_of_the_header() -> None:
    assert (ORT_CODES[0], ORT_CODES[3], ORT_CODES[11]) == (
        "ORT_OK",
        "ORT_NO_SUCHFILE",
        "ORT_EP_FAIL",
    )


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (" <E> Failed to find available PD", "Failed to find available PD"),
        (
            "Something failed [onnx_ctx_model_helper.cc:346 LoadQnnCtxFromOnnxGraph]",
            "Something failed",
        ),
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
        ("Load model from /a/b.onnx failed", "Load model from /a/b.onnx failed"),
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


def test_a_line_is_read_to_its_4000th_character() -> None:
    assert plain("x" * 5000) == "x" * 4000


def test_of_a_chain_of_more_than_forty_the_first_ones_and_the_last_are_kept() -> None:
    lines = tuple(f"line {number}." for number in range(41))
    assert chain_of(lines[:39]) == lines[:39]
    assert chain_of(lines[:40]) == lines[:40]
    assert chain_of(lines) == (*lines[:39], lines[40])


def test_a_long_chain_keeps_its_end() -> None:
    chain = chain_of([f"line {number}." for number in range(1000)])
    assert (len(chain), chain[0], chain[-1]) == (MAX_CHAIN, "line 0.", "line 999.")


@reaches(0.05)
@given(st.text(), st.lists(st.text(max_size=40), max_size=8), st.integers(-5, 70000))
def test_any_text_is_taken(message: str, logged: list[str], code: int) -> None:
    error = parse_ort_error(code, message, logged)
    if error.chain:
        reached()
    assert all(line.strip() == line and line for line in error.chain)
    assert error.qnn_code is None or error.qnn_code >= 1000
