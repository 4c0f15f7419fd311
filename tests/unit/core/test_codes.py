"""Codes: ranges, symbols as the libraries give them, numbers without a meaning."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.core.codes import _RANGES, GPU_ERRORS, describe, symbol_table

COMPONENTS = {name for *_, name in _RANGES} | {"dsp", "none", "unknown"}
# What QnnError_getMessage of libQnnHtp.so answers, 2.47.0 and 2.51.0 alike.
SAID_BY_THE_LIBRARY = {
    1000: "QNN_COMMON_ERROR_NOT_SUPPORTED",
    1002: "QNN_COMMON_ERROR_MEM_ALLOC",
    1003: "QNN_COMMON_ERROR_SYSTEM",
    1004: "QNN_COMMON_ERROR_INVALID_ARGUMENT",
    1006: "QNN_COMMON_ERROR_PLATFORM_NOT_SUPPORTED",
    1007: "QNN_COMMON_ERROR_SYSTEM_COMMUNICATION",
    1100: "QNN_COMMON_ERROR_GENERAL",
    2000: "QNN_PROPERTY_ERROR_UNKNOWN_KEY",
    3000: "QNN_OP_PACKAGE_ERROR_LIBRARY_ALREADY_INITIALIZED",
    4000: "QNN_BACKEND_ERROR_CANNOT_INITIALIZE",
    5000: "QNN_CONTEXT_ERROR_INVALID_ARGUMENT",
    5005: "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY",
    6000: "QNN_GRAPH_ERROR_INVALID_ARGUMENT",
    6004: "QNN_GRAPH_ERROR_INVALID_TENSOR",
    8000: "QNN_MEM_ERROR_INVALID_ARGUMENT",
    9000: "QNN_SIGNAL_ERROR_SIGNAL_IN_USE",
    10000: "QNN_ERROR_INVALID_ARGUMENT",
    12000: "QNN_PROFILE_ERROR_INVALID_HANDLE",
    14000: "QNN_DEVICE_ERROR_INVALID_HANDLE",
    0: "QNN_SUCCESS",
}


@pytest.mark.parametrize(("code", "symbol"), SAID_BY_THE_LIBRARY.items())
@pytest.mark.parametrize("api", [None, "QnnContext_createFromBinary", "QnnMem_register"])
def test_the_symbol_is_the_librarys_own(code: int, symbol: str, api: str | None) -> None:
    assert describe(code, api=api).symbol == symbol


@pytest.mark.parametrize(
    ("code", "component", "printed"),
    [
        (1002, "common", "0x3ea"),
        (2000, "property", "0x7d0"),
        (3110, "op_package", "0xc26"),
        (4000, "backend", "0xfa0"),
        (5005, "context", "0x138d"),
        (6999, "graph", "0x1b57"),
        (7001, "tensor", "0x1b59"),
        (8003, "mem", "0x1f43"),
        (9004, "signal", "0x232c"),
        (10001, "error", "0x2711"),
        (11002, "log", "0x2afa"),
        (12001, "profile", "0x2ee1"),
        (13000, "perf_infrastructure", "0x32c8"),
        (14001, "device", "0x36b1"),
        (15000, "global_config", "0x3a98"),
        (30010, "system", "0x753a"),
        (60000, "interface", "0xea60"),
        (77, "unknown", "0x4d"),
        (16000, "unknown", "0x3e80"),
    ],
)
def test_ranges(code: int, component: str, printed: str) -> None:
    info = describe(code)
    assert (info.component, info.hex) == (component, printed)


def test_the_api_decides_where_the_range_does_not() -> None:
    context = describe(30010, api="QnnSystemContext_getMetadata")
    dlc = describe(30010, api="QnnSystemDlc_createFromBinary")
    assert context.symbol == "QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY"
    assert dlc.symbol == "QNN_SYSTEM_DLC_ERROR_MALFORMED_BINARY"
    assert describe(1006, api="QnnBackend_create").symbols[0] == (
        "QNN_BACKEND_ERROR_UNSUPPORTED_PLATFORM"
    )


def test_6999_is_only_the_end_of_a_range() -> None:
    info = describe(6999, api="QnnGraph_execute")
    assert info.symbol == "QNN_GRAPH_MAX_ERROR"
    assert info.note == "end of the graph range, carries no cause"


def test_other_numbers_without_a_meaning_say_so() -> None:
    assert describe(7000).note == "start of the tensor range, carries no cause"
    assert describe(5555).note == "no meaning is assigned to this number"
    assert describe(1002).note is None


def test_only_the_low_16_bits_are_the_code() -> None:
    info = describe(0x0001_0000_03EA)
    assert (info.code, info.component, info.raw) == (1002, "common", 0x0001_0000_03EA)


@pytest.mark.parametrize(
    ("raw", "number", "name"),
    [
        (0x80000406, 6, "AEE_EUNABLETOLOAD"),
        (0x80000600, 0x200, "AEE_ERPC"),
        (0x80000401, 1, "AEE_EFAILED"),
        (0x80000468, 0x68, "AEE_ENORPCMEMORY"),
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


@pytest.mark.parametrize(
    ("number", "name"),
    # as libQnnGpu.so of QNN 2.51.0 for x86-64 logged them together
    [
        (10005, "DOES_NOT_EXIST"),
        (10006, "FAILED_CREATION"),
        (10008, "INVALID_ARG"),
        (10011, "INVALID_SIZE"),
        (10012, "INVALID_TYPE"),
        (10013, "NULL_INSTANCE"),
        (10014, "OPENCL"),
        (10018, "UNSUPPORTED"),
        (10019, "ALREADY_EXISTS"),
        (10023, "OP_PACKAGE_FAILED"),
        (10025, "INVALID_TENSOR"),
        (10026, "INSUFFICIENT_BUFFER"),
        (10028, "INVALID_VERSION"),
    ],
)
def test_numbers_of_the_gpu_library(number: int, name: str) -> None:
    assert GPU_ERRORS[number] == f"GPU_ERROR_{name}"
