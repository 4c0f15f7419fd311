"""Patterns from a file: useful ones are allowed, dangerous ones refused, time is bounded."""

from __future__ import annotations

import contextlib
import re
import time
import warnings

import pytest
from hypothesis import given, settings, strategies as st

from harness.results.known_issues import (
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


@pytest.mark.parametrize(
    "text",
    [
        "x" * 200,
        "a*b+",
        "a*?b++",
        "a?b?c?d?e|f|g",
        "a??b",
        "a?+b",
        "a{0}",
        "a{99}",
        "a{100}",
        "a{2}?",
        "(?:ab)c{3}",
        r"\(\)\*\*\*",
        "[*+?|]*[*+?|]*",
        r"[\[:x]",
        "(a)",
        "\n",
        r"\{",
    ],
)
def test_what_is_allowed(text: str) -> None:
    assert safe_pattern(text).text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be 1 to 200 characters"),
        ("x" * 201, "must be 1 to 200 characters"),
        ("(", r"is not a regular expression: missing \)"),
        ("(a)*", "a repeated group is not allowed"),
        ("(a){2}", "a repeated group is not allowed"),
        ("a*b*c*", r"more than 2 of \* and \+ are not allowed"),
        ("a?b?c?d|e|f|g|h", r"more than 6 of \? and \| are not allowed"),
        ("a{101}", r"\{101\} is not allowed; an exact count up to 100 is, as in \{8\}"),
        ("a{200}", r"\{200\} is not allowed"),
        ("a{", r"\{ is not allowed"),
        ("a*{", r"\{ is not allowed"),
        ("a*{e<=1}", r"\{ is not allowed"),
        ("a{2,3}", r"\{2,3\} is not allowed"),
        ("(?=a)b", r"\(\?= is not allowed; only plain groups and \(\?: are"),
        (r"(a)\1", "a back reference is not allowed"),
        ("[x[:y]", r"\[: is not allowed in a class; put a backslash before \["),
    ],
)
def test_what_is_refused_is_told_why(text: str, message: str) -> None:
    with pytest.raises(UnsafePatternError, match=message):
        safe_pattern(text)


def test_fifty_lines_of_500_characters_are_looked_at() -> None:
    full = "a" * 500
    pattern = safe_pattern("xyz")
    assert pattern.found_in("\n".join([full] * 49 + ["a" * 497 + "xyz"]))
    assert not pattern.found_in("\n".join([full] * 49 + ["a" * 498 + "xyz"]))
    assert not pattern.found_in("\n".join([full] * 50 + ["xyz"]))
    assert safe_pattern("^$").found_in("")


def test_the_lines_of_a_message_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clocked:
        """A stand-in for a pattern of `regex` that takes 0.4 s for each line."""

        now, limits_s = 7.0, []  # type: ignore[var-annotated]

        def search(self, _line: str, timeout: float) -> None:
            self.limits_s.append(timeout)
            self.now += 0.4

    pattern, clocked = SafePattern("x"), Clocked()
    monkeypatch.setattr(pattern, "_pattern", clocked)
    monkeypatch.setattr(time, "process_time", lambda: clocked.now)
    assert not pattern.found_in("a\nb\nc\nd\ne")
    assert clocked.limits_s == pytest.approx([1.0, 0.6, 0.2, 0.001, 0.001])


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
