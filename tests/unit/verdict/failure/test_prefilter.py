"""Words of regular expressions: every text that one matches has one of them, and is found."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from harness.verdict.failure.prefilter import Prefilter, words_of
from harness.verdict.failure.rules import RULES
from tests.messages.corpus import corpus
from tests.properties import reached, reaches
from tests.unit.verdict.failure.log_rows import LOG_ROWS

PATTERNS = sorted(
    {
        text
        for rule in RULES
        for sign in rule.all_signs
        for text in (sign.text, sign.evidence, sign.absent)
        if text
    }
)
LINES = [
    *(line for _, text in LOG_ROWS for line in text.splitlines()),
    *(one.sample for one in corpus() if one.role != "nothing"),
]
EVERY = Prefilter(PATTERNS)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("SSR [Dd]etected", {"ssr detected"}),
        ("abc(?:def|gh)?i", {"abcdefi", "abcghi", "abci"}),
        (r"open\w* fail.*skel\d+\.so", {"open", " fail", "skel", ".so"} & {"skel"}),
        (r"(?i)(?:VTCM|hmx)\b.{0,60}x", {"vtcm", "hmx"}),
        (r"long word|\d+ short", {"long word", " short"}),
        (r"(?:abcd)+", {"abcd"}),
        (r"(?:abcd)*", {""}),
        (r"\d+|abcd", {""}),
        (r"(?!not )there(?<=e)", {"there"}),
    ],
)
def test_the_words_of_a_pattern(pattern: str, words: set[str]) -> None:
    assert (
        words_of(pattern) in (words, frozenset()) if words == {""} else words_of(pattern) == words
    )


def test_a_pattern_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="no word is in all"):
        Prefilter([r"\d+"])
    with pytest.raises(ValueError, match="no word is in all"):
        Prefilter(["ab"])


def test_each_line_that_a_rule_takes_is_found() -> None:
    taken = [one for one in LINES if any(re.search(pattern, one) for pattern in PATTERNS)]
    assert len(taken) > 500
    assert [one for one in taken if not EVERY.found(one.lower().encode())] == []


def test_what_no_rule_takes_is_mostly_left_out() -> None:
    lines = [f"I ActivityManager: Start proc {n} for service, {n} buffers" for n in range(1000)]
    assert EVERY.found("\n".join(lines).lower().encode()) == []


@reaches(0.9)
@given(st.integers(0, 140_000), st.sampled_from(["long word", "four", "ssr"]))
def test_words_are_found_wherever_they_stand(before: int, word: str) -> None:
    found = Prefilter(["Long word", "[Ff]our", "SSR"]).found(b"." * before + word.encode() + b"\n")
    reached()
    assert len(found) == 1
    assert before <= found[0] < before + len(word)


@reaches(0.9)
@given(st.binary(max_size=300))
def test_any_bytes_are_looked_through(data: bytes) -> None:
    reached()
    assert all(0 <= place < len(data) for place in EVERY.found(data))
