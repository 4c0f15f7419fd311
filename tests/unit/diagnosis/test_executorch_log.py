"""Logs of ExecuTorch, as they came: which call failed, with which code, and what did not."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.diagnosis.verdict import causal_lines, first_failed_call, step_error
from harness.probe.transcript import LogLine, StepResult

Lines = tuple[tuple[str, str], ...]

# ExecuTorch 1.5.1 on QNN 2.51.0, one of its three contexts untouched
OTHER_LAYOUT: Lines = (
    ("info", "Deserializing processed data using QnnContextCustomProtocol"),
    ("info", "Creating new backend bundle."),
    ("info", "create QNN Logger with log_level 1"),
    ("error", " <E> Failed to set scatter gather parameters: unknown custom config socModel 0"),
    ("error", " <E> Failed to parse custom config: 14001"),
    ("error", " <E> Failed to parse platform config: 14001"),
    ("error", "Failed to create device_handle for Backend ID 6, error=14001"),
    ("error", "Fail to configure Qnn device [QnnBackendUnifiedRegistry.cpp:149]"),
    ("info", "Destroy Qnn backend"),
    (
        "error",
        "Fail to get or create shared Qnn backend bundle. Error code: 1 [QnnManager.cpp:235]",
    ),
    ("error", "Fail to initialize Qnn Manager [QnnExecuTorchBackend.cpp:92]"),
    ("error", "Init failed for backend QnnBackend: 0x1 [method.cpp:128]"),
)
# the same on QNN 2.49.40, bytes 40 to 44 of the second context set to 0xff
UNREADABLE: Lines = (
    ("info", "Deserializing processed data using QnnContextCustomProtocol"),
    ("info", "Use cached backend bundle for current backend: kHtpBackend"),
    ("info", "Initialize Qnn backend parameters for Qnn executorch backend type 2"),
    ("info", "Caching: Caching is in RESTORE MODE."),
    ("info", "QnnContextCustomProtocol expected magic number: 0x5678abcd but get: 0x2000000"),
    (
        "warn",
        "Failed to interpret QNN context binary. Error code 30010. Try verifying binary with "
        "online-prepare format.",
    ),
    ("info", "create QNN Logger with log_level 1"),
    ("error", "Can't create dlc from binary. Error 1002."),
    ("error", "Fail to configure Qnn context [QnnManager.cpp:270]"),
    ("error", "Fail to initialize Qnn Manager [QnnExecuTorchBackend.cpp:96]"),
    ("error", "Init failed for backend QnnBackend: 0x1 [method.cpp:128]"),
    ("info", "Destroy Qnn context"),
)
# the same, 500 bytes near its end
INVALID: Lines = (
    ("info", "QnnContextCustomProtocol expected magic number: 0x5678abcd but get: 0x2000000"),
    ("error", " <E> Flatbuffer validation failed"),
    ("error", " <E> Context binary validation failed with err 5005"),
    ("error", " <E> Failed to get context blob meta info or shared blob meta info .etc."),
    ("error", " <E> Failed to create context from binary with err 0x138d"),
    ("error", "Can't create context from binary. Error 5005."),
    ("error", "Fail to configure Qnn context [QnnManager.cpp:270]"),
    ("error", "Fail to initialize Qnn Manager [QnnExecuTorchBackend.cpp:96]"),
    ("error", "Init failed for backend QnnBackend: 0x1 [method.cpp:128]"),
)
NO_PROGRAM: Lines = (("error", "Program identifier 'ohel' != expected 'ET12' [program.cpp:168]"),)
# the end of the log in pytorch/executorch#14985
NO_ROOM: Lines = (
    (
        "error",
        " <E> Failed to find available PD for contextId 57 on deviceId 0 coreId 0with "
        "context size estimate 44597760",
    ),
    ("error", " <E> context create from binary failed on contextId 57"),
    ("error", " <E> Fail to create context from binary with err 1002"),
    ("error", "Can't create context from binary. Error 1002."),
)


def logged(lines: Lines) -> list[LogLine]:
    return [LogLine(level, text, 1) for level, text in lines]


def loading(lines: Lines, code: int = 1, symbol: str = "Error::Internal") -> StepResult:
    return StepResult(
        step=3,
        verb="executorch-context",
        api="Module::load_method",
        context=1,
        begun=True,
        ended=True,
        code=code,
        symbol=symbol,
        logs=logged(lines),
    )


@pytest.mark.parametrize(
    ("lines", "api", "code", "symbol", "first"),
    [
        (OTHER_LAYOUT, "QnnDevice_create", 14001, "INVALID_CONFIG", "Failed to set"),
        (UNREADABLE, "QnnSystemContext_getBinaryInfo", 30010, "MALFORMED_BINARY", "Failed to int"),
        (INVALID, "QnnContext_createFromBinary", 5005, "CREATE_FROM_BINARY", "Flatbuffer valid"),
        (NO_ROOM, "QnnContext_createFromBinary", 1002, "MEM_ALLOC", "Failed to find available PD"),
        (NO_PROGRAM, "Module::load_method", None, "Error::Internal", "Program identifier"),
        ((), "Module::load_method", None, "Error::Internal", "Module::load_method returned 1"),
    ],
    ids=["other-layout", "unreadable", "invalid", "no-room", "no-program", "silent"],
)
def test_the_error_of_a_step(
    lines: Lines, api: str, code: int | None, symbol: str, first: str
) -> None:
    error = step_error(loading(lines))
    assert (error.api, error.code, error.context) == (api, code, 1)
    assert symbol in (error.symbol or "")
    assert error.message.startswith(first)
    assert error.message.endswith("Module::load_method returned 1 (Error::Internal)")
    assert error.first_cause is not None
    assert error.first_cause.message.startswith(first)


def test_what_is_tried_afterwards_is_no_cause() -> None:
    error = step_error(loading(UNREADABLE))
    assert "1002" not in error.message
    assert [link.code for link in error.chain] == [30010, None, None, None, 30010]
    alone = logged((("error", "Can't create dlc from binary. Error 1002."),))
    assert causal_lines(alone) == alone
    call = first_failed_call([alone[0].text])
    assert call == ("QnnSystemDlc_createFromBinary", 1002)


@pytest.mark.parametrize(
    ("line", "api", "code"),
    [
        ("Failed to create log_handle for backend  6, error=4", "QnnLog_create", 4),
        ("Failed to create backend_handle for Backend ID 6, error=4001", "QnnBackend_create", 4001),
        ("Can't retrieve graph forward from context. Error 6003.", "QnnGraph_retrieve", 6003),
        ("Failed to retrieve graph forward. Error 6003.", "QnnGraph_retrieve", 6003),
        ("Failed to finalize Qnn Graph with error: 6002", "QnnGraph_finalize", 6002),
        ("qnn_graph_execute failed. Error 6031", "QnnGraph_execute", 6031),
        ("Can't compose graph from dlc. Error 30001.", "QnnSystemDlc_composeGraphs", 30001),
        ("Tensor x is failed to register shared memory. Error 8002", "QnnMem_register", 8002),
        ("HTP backend unable to create power config. Error 1", "QnnDevice_getInfrastructure", 1),
    ],
)
def test_a_line_that_names_a_call(line: str, api: str, code: int) -> None:
    assert first_failed_call(["something else", line]) == (api, code)


def test_a_dlc_is_no_unreadable_context() -> None:
    """pytorch/executorch#21804: the warning is what every DLC gets, and execution failed."""
    lines = logged(
        (
            (
                "warn",
                "Failed to interpret QNN context binary. Error code 30010. Try verifying binary "
                "with online-prepare format.",
            ),
            ("info", "Skip qnn_graph_create, graph has already been composed from Dlc."),
            ("error", "qnn_graph_execute failed. Error 6031"),
        )
    )
    assert causal_lines(lines) == lines[1:]
    assert causal_lines([lines[1], *lines]) == [lines[1], *lines[1:]]
    assert first_failed_call(line.text for line in causal_lines(lines)) == (
        "QnnGraph_execute",
        6031,
    )


@given(st.lists(st.sampled_from([text for _, text in UNREADABLE]) | st.text()))
def test_no_log_is_too_strange(texts: list[str]) -> None:
    lines = causal_lines([LogLine("error", text, None) for text in texts])
    assert len(lines) <= len(texts)
    call = first_failed_call(line.text for line in lines)
    assert call is None or call[1] in (30010, 1002)
