"""Texts for files: readable, never too large, and saying that they were cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.evidence.case_evidence import telling_lines
from harness.evidence.text import EvidenceFile, clean, fit, redact, whole_lines


@given(st.binary(max_size=300))
def test_clean_text_has_no_control_characters(data: bytes) -> None:
    text = clean(data)
    assert not [char for char in text if ord(char) < 0x20 and char not in "\n\t"]
    assert not [char for char in text if 0x7F <= ord(char) < 0xA0]
    assert len(text) <= len(data)


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
        (EvidenceFile("x", "a@b.de\n" * 20), 140, b"<email>\n" * 8 + b"<email>" + BEHIND),
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
