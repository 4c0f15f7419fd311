"""Texts for files: readable, never too large, and saying that they were cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.evidence.text import EvidenceFile, clean, fit


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


def test_what_is_kept() -> None:
    text = "".join(f"line {number:04}\n" for number in range(100))
    end, _ = fit(EvidenceFile("x", text, keep_end=True), 200)
    assert end.splitlines()[0].startswith(b"[cut")
    assert end.splitlines()[1].startswith(b"line ")
    assert end.endswith(b"line 0099\n")
    start, _ = fit(EvidenceFile("x", text), 200)
    assert start.startswith(b"line 0000\n")
    assert start.splitlines()[-1].startswith(b"[cut")
