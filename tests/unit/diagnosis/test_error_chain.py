"""The chain of a failure: from what the library logged, whichever way it puts numbers."""

import pytest
from hypothesis import given, strategies as st

from harness.diagnosis.error_chain import MAX_LINKS, error_lines, failure_chain, link_of
from harness.probe.transcript import LogLine, StepResult

# Of libQnnHtp.so 2.51.0 for arm64 on a board that tells its SoC and has no DSP.
NO_STUB = "Failed in loading stub: libcdsprpc.so: cannot open shared object file: No such file"
SKEL = [
    ("warn", f" <W> {NO_STUB}"),
    ("error", " <E> loadRemoteSymbols failed with err 4000"),
    ("warn", " <W> Failed to create transport instance: 4000"),
    ("error", " <E> Failed to create transport for device, error: 4000"),
    ("error", " <E> Failed to load skel, error: 4000"),
    ("error", " <E> Transport layer setup failed: 14001"),
]


def step(*lines: tuple[str, str], code: int | None = None, **more: object) -> StepResult:
    result = StepResult(4, "device-create", api="QnnDevice_create", begun=True, ended=True)
    result.code = code
    result.logs = [LogLine(level, text, 1) for level, text in lines]
    for name, value in more.items():
        setattr(result, name, value)
    return result


def test_the_chain_of_a_skel_that_cannot_be_loaded() -> None:
    chain = failure_chain(step(*SKEL, code=14001, message="Invalid config values"))
    assert [(link.code, link.source) for link in chain] == [
        (None, "log"),
        (4000, "log"),
        (4000, "log"),
        (4000, "log"),
        (4000, "log"),
        (14001, "log"),
        (14001, "call"),
    ]
    assert chain[0].message == NO_STUB
    assert (chain[4].message, chain[4].symbol, chain[4].component, chain[4].hex) == (
        "Failed to load skel, error: 4000",
        "QNN_BACKEND_ERROR_CANNOT_INITIALIZE",
        "backend",
        "0xfa0",
    )
    last = chain[-1]
    assert (last.symbol, last.component) == ("QNN_DEVICE_ERROR_INVALID_CONFIG", "device")
    assert last.message == "Invalid config values"


@pytest.mark.parametrize(
    ("text", "code", "symbol"),
    [
        ("Fail to create context from binary with err 1002", 1002, "QNN_COMMON_ERROR_MEM_ALLOC"),
        ("Failed to create context from binary with err 0x36b1", 14001, None),
        ("failed sg_htpSingletonProvider initialize: 4000", 4000, None),
        ("qnn_open failed, 0x80000406, prefix is remote_handle", 0x80000406, "AEE_EUNABLETOLOAD"),
        ("GPU ERROR: GPU_ERROR_FAILED_CREATION(10006) - x", 10006, "GPU_ERROR_FAILED_CREATION"),
        ("GPU ERROR: (10006) - Invalid OpenCL driver path", 10006, "GPU_ERROR_FAILED_CREATION"),
        ("GPU ERROR: (10099) - x", 10099, None),
        ("NEW_ERROR_OF_TOMORROW(77777)", 77777, "NEW_ERROR_OF_TOMORROW"),
        # the first number that is a code is the one
        ("failed with 0x36b1, err 1002", 14001, "QNN_DEVICE_ERROR_INVALID_CONFIG"),
        ("failed with 0X3EA", 1002, "QNN_COMMON_ERROR_MEM_ALLOC"),
        ("failed with 99999, err 1002", 1002, "QNN_COMMON_ERROR_MEM_ALLOC"),
        ("failed with 0x103ea, err 1100", 1100, "QNN_COMMON_ERROR_GENERAL"),
        ("No Snapdragon SOC detected", None, None),
        # numbers that are no codes
        ("Unsupported SoC model (SnapdragonModel): 43", None, None),
        ("Failed to find available PD for contextId 5 with estimate 66595840", None, None),
        ("requires estimated allocation of 2315388 KB, limit is 2097152 KB", None, None),
        ("fastrpc memory map for fd: 40 with length: 65536 failed with error: 0x1", None, None),
        ("done, error: 0", None, None),
    ],
)
def test_numbers_in_lines(text: str, code: int | None, symbol: str | None) -> None:
    (link,) = failure_chain(step(("error", text)))
    assert link.code == code
    assert link.hex == (None if code is None else hex(code))
    if symbol is not None or code is None:
        assert link.symbol == symbol
    assert link.message == text


@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        # the same twice, and a benign one
        ([("error", "a"), ("error", "a"), ("error", "b")], ["a", "b"]),
        ([("error", "expected magic number: 0x5678abcd but get: 0x2000000")], []),
        # a warning of something that is not used is no cause
        ([("warn", "Cost Based unsupported on soc QCS8550"), ("error", "b")], ["b"]),
        # nor is a failing one that something else follows
        ([("warn", "no such option"), ("warn", "Initializing"), ("error", "b")], ["b"]),
        ([("warn", "cannot open x"), ("error", "b"), ("warn", "failed to tidy")], [
            "cannot open x",
            "b",
        ]),
        # where nothing else is said, it is
        ([("warn", "Initializing"), ("warn", "permission denied")], ["permission denied"]),
        ([("info", "it failed"), ("error", "b")], ["b"]),
        ([("error", "")], []),
    ],
)  # fmt: skip
def test_which_lines_are_links(lines: list[tuple[str, str]], messages: list[str]) -> None:
    assert [link.message for link in failure_chain(step(*lines))] == messages


def test_a_long_log_leaves_room_for_the_calls_own_answer() -> None:
    chain = failure_chain(step(*(("error", f"line {n} failed") for n in range(99)), code=1002))
    assert (len(chain), chain[-2].message, chain[-1].code) == (40, "line 38 failed", 1002)


def test_a_step_that_succeeded_has_none() -> None:
    assert failure_chain(step(code=0)) == ()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["error", "warn", "info"]),
            st.one_of(st.text(), st.from_regex(r"err(or)?[:= ]*(0x[0-9a-f]{1,9}|[0-9]{1,12})")),
        ),
        max_size=60,
    ),
    st.sampled_from([None, 0, 1002, 1 << 40]),
)
def test_whatever_is_logged_is_a_bounded_chain(
    lines: list[tuple[str, str]], code: int | None
) -> None:
    failed = step(*lines, code=code)
    chain = failure_chain(failed)
    assert len(chain) <= MAX_LINKS
    assert all(len(link.message) <= 500 for link in chain)
    assert len(error_lines(failed)) <= MAX_LINKS
    assert [link.source for link in chain].count("call") == (1 if code else 0)


def test_the_calls_own_answer_is_told_as_far_as_it_is_known() -> None:
    (named,) = failure_chain(step(code=5005, symbol="QNN_OF_TOMORROW"))
    assert (named.code, named.hex, named.symbol) == (5005, "0x138d", "QNN_OF_TOMORROW")
    assert (named.component, named.message) == ("context", "")
    (bare,) = failure_chain(step(code=5005))
    assert (bare.symbol, bare.message) == ("QNN_CONTEXT_ERROR_CREATE_FROM_BINARY", "")
    (refused,) = failure_chain(step(error="dlopen", message="libX.so: cannot open"))
    assert (refused.code, refused.hex, refused.symbol, refused.component) == (None,) * 4
    assert (refused.message, refused.source) == ("libX.so: cannot open", "call")
    assert failure_chain(step(error="dlopen"))[0].message == "dlopen"
    # what the probe found where the call said that all is well
    (wrong,) = failure_chain(step(code=0, error="mismatch"))
    assert (wrong.code, wrong.message, wrong.source) == (0, "mismatch", "call")


def test_a_link_holds_the_first_500_characters() -> None:
    assert link_of("x" * 600).message == "x" * 500
    assert failure_chain(step(code=1, message="x" * 600))[0].message == "x" * 500


def test_a_line_says_nothing_of_its_level_and_place() -> None:
    result = step(("error", " <E> it broke [a/b.cpp:7 run]"), ("error", "it broke"))
    assert error_lines(result) == ["it broke"]
    many = step(*(("error", f"line {number}") for number in range(99)))
    assert error_lines(many) == [f"line {number}" for number in range(40)]
