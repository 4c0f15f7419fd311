"""Texts for files: readable, without what is private, and never too large."""

import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.evidence.case_evidence import telling_lines
from harness.evidence.redaction import EvidenceFile, clean, fit, redact, whole_lines


@given(st.text(max_size=600), st.integers(-5, 400), st.booleans())
def test_no_text_is_larger_than_allowed(text: str, most: int, keep_end: bool) -> None:
    content, cut = fit(EvidenceFile("x", text, keep_end), most)
    assert len(content) <= max(0, most)
    content.decode()
    assert cut or content or not text


def test_clean_text_keeps_all_but_control_characters() -> None:
    for code in range(0x200):
        steers = (code < 0x20 and chr(code) not in "\n\t") or 0x7F <= code < 0xA0
        assert clean(chr(code).encode()) == ("\ufffd" if steers else chr(code))
    assert clean(b"a\r\nb\xff") == "a\nb\ufffd"


BEFORE = b"[cut: what came before is not kept]\n"
BEHIND = b"\n[cut: what came behind is not kept]\n"
ADDRESS = "someone.long@example-host.com"
LINES = "".join(f"line {number:04}\n" for number in range(30))  # of 10 bytes each


@pytest.mark.parametrize(
    ("file", "most", "content"),
    [
        (EvidenceFile("x", LINES), 300, LINES.encode()),
        # without its last character, and with room left for the line that says so
        (EvidenceFile("x", LINES), 299, LINES[:229].encode() + BEHIND),
        (EvidenceFile("x", LINES, keep_end=True), 299, BEFORE + LINES[-230:].encode()),
        (EvidenceFile("x", LINES), 98, LINES[:29].encode() + BEHIND),
        (EvidenceFile("x", "x" * 300), 100, b"x" * 36 + BEHIND),
        (EvidenceFile("x", "x" * 300), 65, b"x" + BEHIND),
        # what is redacted is shorter, and still ends within an address
        (EvidenceFile("x", f"{ADDRESS}\n" * 20), 200, b"<email>\n" * 5 + b"<email>" + BEHIND),
        (EvidenceFile("x", "x" * 300, keep_end=True), 100, BEFORE + b"x" * 36),
        # the device gave no more
        (EvidenceFile("x", LINES, cut=True), 364, LINES.encode() + BEHIND),
        (EvidenceFile("x", LINES, cut=True), 363, LINES[:289].encode() + BEHIND),
        (EvidenceFile("x", LINES, keep_end=True, cut=True), 364, BEFORE + LINES.encode()),
        # a character has more bytes than one
        (EvidenceFile("x", "\u00fc" * 50), 100, ("\u00fc" * 50).encode()),
        (EvidenceFile("x", "\u00fc" * 50), 99, ("\u00fc" * 17).encode() + BEHIND),
        *((EvidenceFile("x", LINES), most, b"") for most in (64, 9, 0, -9)),
        (EvidenceFile("x", LINES, keep_end=True), 64, b""),
        (EvidenceFile("x", ""), 0, b""),
    ],
)
def test_what_is_kept_of_a_text(file: EvidenceFile, most: int, content: bytes) -> None:
    whole = redact(file.text).encode()
    assert fit(file, most) == (content, file.cut or content != whole)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (b"in\nwhole\n", b"whole\n"),
        (b"half\nhalf\n", b"half\nhalf\n"),
        (b"hal\nhalf\n", b"half\n"),
        (b"most of it\nx\n", b"most of it\nx\n"),
        (b"no end", b"no end"),
        (b"", b""),
    ],
)
def test_a_line_that_was_begun_goes_unless_it_is_most(end: bytes, expected: bytes) -> None:
    assert whole_lines(end) == expected


def test_logs_tell_and_other_files_do_not(tmp_path: Path) -> None:
    files = {
        "logcat-npu.txt": "a\nb\n",
        "dsp.txt": "SSR Detected\n",
        "logcat.txt": "whatever other processes say\n",
        "process-maps.txt": "7f00 /lib/adsprpc\n",
        "evidence.json": "{}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "dmesg.txt").write_bytes(b"\xff\n" + b"x\n" * 5000)
    lines = telling_lines(tmp_path, [*files, "dmesg.txt", "avc.txt"])
    assert lines == ("a", "b", "SSR Detected", *["x"] * 500)


# pieces that patterns are made of, so that texts come near to matching
PIECES = (
    "SSID|bssid|=|: |\"|'|aa:bb:cc:dd:ee:ff|0a-0b-0c-0d-0e-0f|a@b.de|user%40x.org|12:34:|::"
    "|Account {name=|accountName=|}|,|imei|490154203237518|+49 170 1234567|+12345678|10.0.0.1"
    "|fe80::1|\n| |<ssid>|<|>|7|x|\t|é|\x00|%40|a@|.com"
)
TEXTS = st.one_of(
    st.text(max_size=200), st.lists(st.sampled_from(PIECES.split("|")), max_size=30).map("".join)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("login of jane.doe+x@mail.example.com failed", "login of <email> failed"),
        ("https://x/?u=jane%40example.com&z", "https://x/?u=<email>&z"),
        ("Account {name=Jane Doe, type=com.google}", "Account {name=<account>, type=com.google}"),
        ('accountName="Jane D" ok', "accountName=<account> ok"),
        ("account: jane, 3", "account: <account>, 3"),
        ('SSID: "My Net", BSSID: aa:bb:cc:dd:ee:ff, x', "SSID: <ssid>, BSSID: <ssid>, x"),
        ("Trying to associate with SSID 'My Net'", "Trying to associate with SSID <ssid>"),
        ("wlan0: aa:bb:cc:dd:ee:ff: up", "wlan0: <mac>: up"),
        ("AA-BB-CC-DD-EE-FF", "<mac>"),
        ("IMEI: 490154203237518", "IMEI: <id>"),
        ("got 490154203237518 from modem", "got <imei> from modem"),
        ("androidboot.serialno=abc123", "androidboot.serialno=<id>"),
        ("dial +49 170 1234567 now", "dial <phone> now"),
        ('Accounts of account "Jane D", and', "Accounts of account <account>, and"),
        # what stands in for one thing lets another be seen
        ("490154203237518+49 170 1234567", "<imei><phone>"),
    ],
)
def test_what_is_taken_out(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "05-21 12:34:56.789  1234  5678 E QnnDsp  : <E> Failed to load skel, error: 4000",
        "/vendor/lib64/hw/android.hardware.audio@7.0-impl.so",
        "vendor.qti.hardware.dsp@1.0::IDspService/dspservice",
        "#04 pc 0000000000012345  /apex/libc.so (__pthread_cond_wait+104) (BuildId: 0123456789ab)",
        "7f00aabbc000-7f00aabbd000 r-xp 00001000 fd:01 1234567  /data/local/tmp/libQnnHtp.so",
        "NSsid:\t3947",
        "memcpy@@GLIBC_2.14 pthread_create@plt",
        "uptime 123456789012345 ns",
        "QNN 2.47.0.260601 at 192.168.1.2",
        "Failed to find available PD for contextId 56 on deviceId 0 coreId 0",
    ],
)
def test_what_stays(text: str) -> None:
    assert redact(text) == text


@given(TEXTS)
def test_it_is_idempotent_bounded_and_keeps_lines(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert len(once) <= 2 * len(text)
    assert once.count("\n") == text.count("\n")


@given(TEXTS, TEXTS)
def test_lines_do_not_affect_one_another(first: str, second: str) -> None:
    lines = [*first.split("\n"), *second.split("\n")]
    together = redact("\n".join(lines))
    assert together == "\n".join(redact(line) for line in lines)


REPEATED = (
    'a|1|a.|aa:|ssid |a@a.|+12345678|ssid="|account=|1.2.| \t|ssid=a |1:|%40a.|Account {name='
    "|490154203237518|a-|+1 2|::1"
)


@pytest.mark.parametrize("piece", REPEATED.split("|"))
def test_no_text_takes_long(piece: str) -> None:
    start_s = time.monotonic()
    redact(piece * (60_000 // len(piece)))
    assert time.monotonic() - start_s < 20


def test_a_line_that_is_made_to_defy_redaction_is_taken_out_as_a_whole() -> None:
    defying = "490154203237518" + "+12345678" * 20
    assert redact(f"before\n{defying}\nmail to a@b.de") == "before\n<line>\nmail to <email>"


@given(st.text("0123456789", min_size=14, max_size=14))
def test_a_number_of_15_digits_is_an_imei_if_its_last_one_checks(digits: str) -> None:
    """The check digit as 3GPP TS 23.003, annex B, has it: every second digit counts twice."""
    single = sum(map(int, digits[0::2]))
    double = sum(int(digit) for one in digits[1::2] for digit in str(2 * int(one)))
    check = -(single + double) % 10
    numbers = [f"x {digits}{last} y" for last in range(10)]
    expected = ["x <imei> y" if index == check else number for index, number in enumerate(numbers)]
    assert [redact(number) for number in numbers] == expected
