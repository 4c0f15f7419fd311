"""Signatures: stable against what varies, different where failures differ."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.failure.error import MAX_SIGNATURE_CHARS, signature, without_varying_parts

PD = (
    "Failed to find available PD for contextId {} on deviceId 0 coreId 0with context size "
    "estimate {}\nFail to create context from binary with err 1002"
)


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        (
            PD.format(56, 74989568),
            "Failed to find available PD for contextId <n> on deviceId <n> coreId <n>with context "
            "size estimate <n> / Fail to create context from binary with err <n>",
        ),
        ("fastrpc memory map ... error: 0x1", "fastrpc memory map ... error: <hex>"),
        ("expected magic 0x5678ABCD but get: 0x2000000", "expected magic <hex> but get: <hex>"),
        (
            "dlopen failed: /data/local/tmp/q/libQnnHtp.so: no such file",
            "dlopen failed: <path> no such file",
        ),
        ("cannot open '/tmp/a b/c.bin'", "cannot open '<path> b/c.bin'"),
        ("libQnnHtpV73Stub.so missing", "libQnnHtpV<n>Stub.so missing"),
        ("I/O error and read/write", "I/O error and read/write"),
        ("sha256 0f343b0931126a20f133d67c2b018a3b9", "sha<n> <hex>"),
        ("session 9f1b3a52-1c9e-4a73-8a1f-0d7f66e0c9aa lost", "session <uuid> lost"),
        ("at b400007c8f2d1e30", "at <hex>"),
        ("max_abs 1.5e-07 beyond tolerance -0.001", "max_abs <n> beyond tolerance <n>"),
        ("127.0.0.1:5037 refused", "<n>:<n> refused"),
        ("a  b\t c ", "a b c"),
        ("same 1\nsame 2\nother", "same <n> / other"),
        ("", ""),
        ("deadbeefs and cabbages", "deadbeefs and cabbages"),
    ],
)
def test_what_is_taken_out(message: str, plain: str) -> None:
    assert without_varying_parts(message) == plain


def test_parts() -> None:
    assert signature("QnnGraph_execute", 6999, "") == "QnnGraph_execute|6999|-"
    assert signature(None, None, "boom 3") == "-|-|boom <n>"


def test_api_and_code_tell_failures_apart() -> None:
    texts = {
        signature(api, code, "same")
        for api in ("QnnMem_register", "QnnGraph_execute")
        for code in (1000, 1002, None)
    }
    assert len(texts) == 6


def test_long_messages_are_bounded() -> None:
    assert len(without_varying_parts("word " * 100_000)) <= MAX_SIGNATURE_CHARS


messages = st.one_of(
    st.text(max_size=120),
    st.text(alphabet="0123456789abcdefx/.<>-,+ e\n:'\"(", max_size=60),
)


@settings(max_examples=400)
@given(messages)
@example("1/abc")
@example("1-2 <-3 >+4")
@example("x" * 298 + " 1")
@example("1e5e6 0x1g 0x12/a")
def test_a_second_pass_changes_nothing(message: str) -> None:
    once = without_varying_parts(message)
    assert without_varying_parts(once) == once
    assert len(once) <= MAX_SIGNATURE_CHARS


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**6))
def test_numbers_do_not_matter(first: int, second: int, third: int) -> None:
    api = "QnnContext_createFromBinary"
    reference = signature(api, 1002, PD.format(1, 2))
    assert signature(api, 1002, PD.format(first, second)) == reference
    assert signature(api, 1002, PD.format(third, f"0x{first:x}")) in (
        reference,
        reference.replace("estimate <n>", "estimate <hex>"),
    )


@given(st.text(alphabet="abcdefXYZ_.-0123456789", min_size=1, max_size=12))
def test_paths_do_not_matter(name: str) -> None:
    assert without_varying_parts(f"open /data/{name}/context.bin: denied") == "open <path> denied"
