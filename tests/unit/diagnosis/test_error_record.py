"""Signatures: stable against what varies, different where failures differ."""

import pytest
from hypothesis import example, given, settings, strategies as st
from pydantic import ValidationError

from harness.core.json_record import clean_text, cut_message
from harness.diagnosis.error_record import (
    MAX_SIGNATURE_CHARS,
    ChainLink,
    ErrorRecord,
    signature,
    without_varying_parts,
)
from harness.probe.transcript import LoadedLibrary


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        (
            "Failed to find available PD for contextId 56 on deviceId 0 coreId 0with context size "
            "estimate 74989568\nFail to create context from binary with err 1002",
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


def test_api_and_code_tell_failures_apart() -> None:
    assert signature("QnnGraph_execute", 6999, "") == "QnnGraph_execute|6999|-"
    assert signature(None, None, "boom 3") == "-|-|boom <n>"


def test_long_messages_are_bounded() -> None:
    assert len(without_varying_parts("word " * 100_000)) <= MAX_SIGNATURE_CHARS
    assert without_varying_parts("x" * 400) == "x" * 300
    # numbers of any length leave room for what is said behind them
    assert without_varying_parts(f"{'7' * 5900} bytes") == "<n> bytes"


messages = st.one_of(
    st.text(max_size=120), st.text(alphabet="0123456789abcdefx/.<>-,+ e\n:'\"(", max_size=60)
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


@pytest.mark.parametrize(("length", "whole"), [(15_999, True), (16_000, True), (16_001, False)])
def test_a_message_of_at_most_16_000_characters_stays_whole(length: int, whole: bool) -> None:
    message = "a" + "x" * (length - 2) + "b"
    cut = cut_message(message)
    assert (cut == message) is whole
    assert 15_900 < len(cut) <= 16_000
    assert (cut[0], cut[-1]) == ("a", "b")


@pytest.mark.parametrize("text", [7, None, b"x", "plain", "", "\u00fc\u932f"])
def test_what_is_clean_stays_as_it_is(text: object) -> None:
    assert clean_text(text) == text


@pytest.mark.parametrize(("number", "fits"), [(2**64 - 1, True), (2**64, False)])
def test_numbers_have_at_most_64_bits(number: int, fits: bool) -> None:
    for code in (number, -number):
        if fits:
            assert ErrorRecord(step=code, signature="s").step == code
        else:
            with pytest.raises(ValidationError):
                ErrorRecord(step=code, signature="s")


@pytest.mark.parametrize(
    ("fields", "call"),
    [
        (
            {"api": "QnnGraph_execute", "code": 6999, "symbol": "QNN_X"},
            "QnnGraph_execute 6999 QNN_X",
        ),
        ({"api": "QnnGraph_execute", "code": 1, "symbol": None}, "QnnGraph_execute 1"),
        ({"api": None, "code": 6999, "symbol": ""}, "6999"),
        # outputs are wrong, and the call says that all is well
        ({"api": "QnnGraph_execute", "code": 0, "symbol": "QNN_SUCCESS"}, "QnnGraph_execute"),
        ({"api": None, "code": None}, ""),
    ],
)
def test_a_call_is_named_as_far_as_it_is_known(fields: dict[str, object], call: str) -> None:
    assert ErrorRecord.model_validate({"signature": "s", **fields}).call == call


@pytest.mark.parametrize(
    ("first", "message", "headline"),
    [
        ("no PD\nmore", "refused", "no PD"),
        (None, " refused\nbecause", "refused"),
        (" \n", "refused", "refused"),
        (None, "", ""),
    ],
)
def test_a_failure_began_with_the_first_line_of_its_cause(
    first: str | None, message: str, headline: str
) -> None:
    chain = () if first is None else (ChainLink(message=first, source="log"),)
    error_record = ErrorRecord.of(
        message=message, chain=(*chain, ChainLink(message="x", source="call"))
    )
    assert error_record.first_cause == error_record.chain[0]
    assert ErrorRecord.of(message=message).first_cause is None
    if first is None:
        error_record = ErrorRecord.of(message=message)
    assert error_record.headline == headline


def test_a_line_more_changes_the_message_and_not_what_it_is_known_by() -> None:
    error_record = ErrorRecord.of(message="a 1", code=1002)
    more = error_record.with_line("and then")
    assert more.message == "a 1\nand then"
    assert more.model_copy(update={"message": error_record.message}) == error_record
    assert ErrorRecord.of(message="").with_line("only").message == "only"
    assert len(ErrorRecord.of(message="x" * 16_000).with_line("more").message) <= 16_000


@pytest.mark.parametrize("code", [None, 1003])
def test_hex_is_that_of_the_code_or_nothing(code: int | None) -> None:
    with pytest.raises(ValidationError):
        ErrorRecord(code=code, hex="0x3ea", signature="s")
    assert ErrorRecord(code=1002, hex="0x3ea", signature="s").hex == "0x3ea"
    assert ErrorRecord(code=1002, signature="s").hex is None


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (LoadedLibrary(name="a.so", path="/b/a.so"), "a.so: /b/a.so"),
        (LoadedLibrary(name="a", path="/a", version="2.5"), "a: /a (2.5)"),
        (
            LoadedLibrary(name="a", path="/a", build_id="9f", hides="/b"),
            "a: /a (build id 9f) hides /b",
        ),
        (LoadedLibrary(name="a", path="/a", version="2", build_id="9"), "a: /a (2, build id 9)"),
    ],
)
def test_what_is_told_to_a_person(part: LoadedLibrary, text: str) -> None:
    assert part.text() == text
