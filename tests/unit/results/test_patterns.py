"""Patterns from a file: useful ones are allowed, dangerous ones refused, time is bounded."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.results.patterns import UnsafePatternError, found_in, safe_pattern


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
    assert found_in(safe_pattern(text), message) is found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 201,
        "(",
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
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(UnsafePatternError):
        safe_pattern(text)


@pytest.mark.parametrize(
    "text", [".*.*x", "a*a*b", "a?a?a?a?a?a?" + "a" * 100 + "b", ".*" + "a" * 90 + "d"]
)
def test_the_worst_that_is_allowed_ends_soon(text: str) -> None:
    began = time.monotonic()
    assert not found_in(safe_pattern(text), "a" * 499 + "c")
    assert time.monotonic() - began < 5


@given(st.text(alphabet="ab()|*+?{}[]\\1,^$.-:=<!P", max_size=25), st.text("ab\n", max_size=200))
def test_any_text_is_a_bounded_pattern_or_refused(text: str, message: str) -> None:
    began = time.monotonic()
    try:
        pattern = safe_pattern(text)
    except UnsafePatternError:
        return
    found_in(pattern, message)
    assert time.monotonic() - began < 5
