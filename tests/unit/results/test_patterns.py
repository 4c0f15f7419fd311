"""Patterns from a file: useful ones are allowed, dangerous ones refused, time is bounded."""

from __future__ import annotations

import contextlib
import re
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.results.patterns import (
    LIMIT_S,
    SafePattern,
    SlowPatternError,
    UnsafePatternError,
    safe_pattern,
)
from tests.properties import reached, reaches


@pytest.mark.parametrize(
    ("text", "message", "found"),
    [
        ("Failed to find available PD", "x\nFailed to find available PD for contextId 5", True),
        ("^Fail to create .* err 1002$", "a\nFail to create context with err 1002", True),
        (r"arch with value \d+ unsupported", "arch with value 75 unsupported", True),
        ("(map|Map) Buffer", "failed to Map Buffer to SMMU", True),
        (r"0x[0-9a-f]{8}\b", "magic 0x5678abcd", True),
        ("a?b?c", "c", True),
        ("x", "", False),
        ("a.b", "a\nb", False),
        (r"\(no\) \[x\]\*\?\{2\}", "(no) [x]*?{2}", True),
        ("[]*+?{]", "?", True),
        ("a+?b", "aab", True),
    ],
)
def test_searching(text: str, message: str, found: bool) -> None:
    assert safe_pattern(text).found_in(message) is found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 201,
        "(",
        r"\UFFFFFFFF",
        r"\U00110000",
        "a**",
        "(a+)+$",
        "(a|a)*",
        "(?:ab)+",
        "(ab){3}",
        "a{1,100}",
        "a{101}",
        "a{,5}",
        "a*b*c*",
        "a?a?a?a?a?a?a?",
        "(a|a)" * 7,
        r"(a)\1",
        "(?=a)b",
        "(?<=a)b",
        "(?i)a",
        "(?P<x>a)",
        "(a?)?",
        "(?:ab){e<=1}",
        r"\p{L}",
        "[[a]b]",
        "[x[:alpha:]]",
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(UnsafePatternError):
        safe_pattern(text)


# Six groups that match in two ways each, before all places and lengths: minutes in `re`.
WORST = "(?:a|a)" * 6 + "a*a*a{100}b"


@pytest.mark.parametrize(
    "text", [".*.*x", "a*a*b", "a?a?a?a?a?a?" + "a" * 100 + "b", ".*" + "a" * 90 + "d", WORST]
)
def test_the_worst_that_is_allowed_ends(text: str) -> None:
    began = time.process_time()
    with contextlib.suppress(SlowPatternError):
        SafePattern(text).found_in("\n".join(["b" + "a" * 498 + "c"] * 50))
    assert time.process_time() - began < 10 * LIMIT_S


def test_a_pattern_that_takes_too_long_is_given_up() -> None:
    slow = SafePattern(WORST, limit_s=0.01)
    assert slow.found_in("x" * 100) is False
    for _ in range(2):
        with pytest.raises(SlowPatternError):
            slow.found_in("b" + "a" * 498 + "c")
    began = time.process_time()
    for number in range(1000):
        with pytest.raises(SlowPatternError):
            slow.found_in(f"b{'a' * 400}{number}")
    assert time.process_time() - began < 5
    assert slow.found_in("x" * 100) is False, "what was known stays known"


def test_each_text_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, searched = SafePattern("a.c"), []
    monkeypatch.setattr(pattern, "_search", lambda lines: searched.append(lines) or True)
    for _ in range(3):
        assert pattern.found_in("abc\nd")
    assert searched == [["abc", "d"]]


PIECES = [
    *"ab()|*+?{}[]\\1,^$.-:=<!P&~e",
    *("\\" + letter for letter in "dwsbSWAZ"),
    *(
        "\\x61",
        "{2}",
        "(?:",
        "[^",
        "[:",
        ":]",
        "[[",
        "--",
        "&&",
        "||",
        "~~",
        "{e}",
        "{e<1}",
        "*?",
        "++",
    ),
]


@reaches(0.1)
@settings(max_examples=500)
@given(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.text("ab1_ -&~|[]:\té\x1c\xa0\u2028", min_size=1, max_size=12),
)
def test_what_is_allowed_means_what_it_means_to_pythons_own_module(text: str, message: str) -> None:
    try:
        pattern = safe_pattern(text)
    except UnsafePatternError:
        return
    reached()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = any(re.search(text, line) for line in message.splitlines())
    assert pattern.found_in(message) is wanted
