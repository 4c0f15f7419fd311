"""Failed steps in a record: codes of QNN, ONNX Runtime and ExecuTorch, and what was said."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.diagnosis.error_record import OrtCode
from harness.diagnosis.verdict import causal_lines, first_failed_call, step_error
from harness.probe.transcript import LogLine, StepResult
from harness.report.summary import code_of
from tests.snapshots import Snapshot
from tests.unit.results.records import record

NO_PD = "Failed to find available PD for contextId 55 on deviceId 0"
TEXT = "Failed to load. Error: QNN_COMMON_ERROR_MEM_ALLOC: Memory allocation related error."


def step(verb: str, number: int = 0, **more: Any) -> StepResult:
    fields: dict[str, Any] = {"begun": True, "ended": True, "code": 0} | more
    return StepResult(number, verb, **fields)


def refused(**more: Any) -> StepResult:
    fields: dict[str, Any] = {
        "api": "CreateSession",
        "context": 54,
        "code": 10,
        "symbol": "ORT_INVALID_GRAPH",
        "message": TEXT,
        "logs": [LogLine("error", f" <E> {NO_PD}", 1), LogLine("warn", "not this", 2)],
    }
    return step("ort-session", 59, **(fields | more))


def test_a_refusal_has_qnns_code_and_orts_own() -> None:
    error = step_error(refused())
    assert (error.api, error.code, error.hex) == ("CreateSession", 1002, "0x3ea")
    assert (error.symbol, error.component) == ("QNN_COMMON_ERROR_MEM_ALLOC", "common")
    assert error.ort == OrtCode(code=10, name="ORT_INVALID_GRAPH")
    assert (error.step, error.context) == (59, 54)
    assert error.message == f"{NO_PD}\n{TEXT}"
    assert error.signature.startswith("CreateSession|1002|Failed to find available PD")


def test_a_refusal_without_a_code_of_qnns() -> None:
    error = step_error(refused(message="Empty cache file.", logs=[]))
    assert (error.code, error.hex, error.symbol, error.component) == (None, None, None, None)
    assert error.ort is not None
    assert error.signature == "CreateSession|-|Empty cache file."


def test_a_text_too_long_for_its_place_is_taken_whole() -> None:
    whole = "x" * 3000 + " Error code: 6999"
    error = step_error(refused(message=whole[:1023], data={"status_text": whole}, logs=[]))
    assert error.code == 6999
    assert error.symbol == "QNN_GRAPH_MAX_ERROR"


@pytest.mark.parametrize("error", ["mismatch", "guard"])
def test_a_call_that_succeeded_is_not_told_by_its_code(error: str) -> None:
    error_record = step_error(step("execute", 3, api="QnnGraph_execute", error=error, message="m"))
    assert (error_record.code, error_record.call) == (0, "QnnGraph_execute")
    assert code_of(record(outcome="failed", error=error_record)) == "outputs"


LOAD = "QnnContext_createFromBinary"


@pytest.mark.parametrize(
    ("fields", "logged", "message"),
    [
        ({"code": 5005}, [], ""),
        ({"code": 6999, "message": "its words"}, [], "its words"),
        ({"code": 6999, "message": "its words"}, ["a", "b"], "a\nb"),
        ({"code": None, "error": "dlopen"}, [], "dlopen"),
        ({"code": None, "error": "dlopen", "message": "no file"}, ["a", "b"], "no file\na\nb"),
        # a step that was never heard of again
        ({"code": None, "ended": False}, [], ""),
    ],
)
def test_the_message_is_what_says_most(
    fields: dict[str, Any], logged: list[str], message: str
) -> None:
    lines = [LogLine("error", text, 1) for text in logged]
    error = step_error(step("context-load", 3, api=LOAD, context=7, logs=lines, **fields))
    assert (error.message, error.api, error.step, error.context) == (message, LOAD, 3, 7)
    assert (error.code, error.ort) == (fields["code"], None)


@pytest.mark.parametrize("verb", ["ort-run", "executorch-run"])
def test_of_a_step_that_was_never_heard_of_again_no_engine_says_anything(verb: str) -> None:
    error = step_error(step(verb, 3, api="Run", code=None, ended=False))
    assert (error.message, error.code, error.ort, error.api) == ("", None, None, "Run")


def test_a_call_that_has_no_name_is_none_unless_it_opens_a_library() -> None:
    assert step_error(step("backend-load", error="dlopen", code=None)).api == "dlopen"
    assert step_error(step("backend-load", error="symbol", code=None)).api is None


@pytest.mark.parametrize("verb", ["ort-run", "executorch-run"])
def test_what_the_probe_found_itself_is_told_of_any_engine(verb: str) -> None:
    result = step(verb, 2, api="Run", code=1, error="mismatch", message="run 0: wrong")
    error = step_error(result)
    assert (error.code, error.ort, error.message) == (0, None, "run 0: wrong")


WRONG = {"name": "y", "max_abs": 0.375, "beyond": 3}


def test_outputs_that_are_wrong_say_by_how_much(snapshot: Snapshot) -> None:
    def message(outputs: list[dict[str, Any]], error: str = "mismatch") -> str:
        data = {"outputs": outputs}
        return step_error(step("execute", error=error, message="m", data=data)).message

    messages = [
        message([WRONG | {"first_value": first, "first_expected": expected, "nan": nan}])
        for first, expected, nan in (
            (0.5, 0.25, 0),
            (2.7558593, 2.7558641, 0),
            (None, 0.25, 2),
            (0.5, None, 0),
        )
    ]
    assert messages == snapshot
    assert message([WRONG], "guard") == "m"


def test_of_ort_its_own_words_count_where_no_longer_ones_came() -> None:
    for data in ({}, {"status_text": None}, {"status_text": 7}):
        assert step_error(refused(data=data, logs=[])).message == TEXT
    silent = step_error(refused(message=None, logs=[]))
    assert (silent.message, silent.code) == ("", None)
    assert silent.ort == OrtCode(code=10, name="ORT_INVALID_GRAPH")
    chain = step_error(refused()).chain
    assert [(link.message, link.code) for link in chain] == [(NO_PD, None), (TEXT, 1002)]


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


def loading(lines: Lines) -> StepResult:
    return StepResult(
        step=3,
        verb="executorch-context",
        api="Module::load_method",
        context=1,
        begun=True,
        ended=True,
        code=1,
        symbol="Error::Internal",
        logs=logged(lines),
    )


@pytest.mark.parametrize(
    ("lines", "api", "code", "symbol", "first"),
    [
        (OTHER_LAYOUT, "QnnDevice_create", 14001, "INVALID_CONFIG", "Failed to set"),
        (UNREADABLE, "QnnSystemContext_getBinaryInfo", 30010, "MALFORMED_BINARY", "Failed to int"),
        (NO_ROOM, "QnnContext_createFromBinary", 1002, "MEM_ALLOC", "Failed to find available PD"),
        (NO_PROGRAM, "Module::load_method", None, "Error::Internal", "Program identifier"),
        ((), "Module::load_method", None, "Error::Internal", "Module::load_method returned 1"),
    ],
    ids=["other-layout", "unreadable", "no-room", "no-program", "silent"],
)
def test_the_error_of_a_step(
    lines: Lines, api: str, code: int | None, symbol: str, first: str
) -> None:
    error = step_error(loading(lines))
    assert (error.api, error.code, error.context) == (api, code, 1)
    assert symbol in (error.symbol or "")
    assert error.message.startswith(first)
    assert error.message.endswith("Module::load_method returned 1 (Error::Internal)")
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
