"""Patterns of known issues: searched line by line, in linear time."""

from __future__ import annotations

import time

import pytest

from harness.results.known_issues import MAX_LINE_CHARS, compiled_pattern, is_in_message


@pytest.mark.parametrize(
    ("pattern", "message", "is_found"),
    [
        ("Failed to find available PD", "x\nFailed to find available PD for contextId 5", True),
        ("^Fail to create .* err 1002$", "a\nFail to create context with err 1002", True),
        (r"arch with value \d+ unsupported", "arch with value 75 unsupported", True),
        ("(map|Map) Buffer", "failed to Map Buffer to SMMU", True),
        ("(?i)map buffer", "failed to Map Buffer to SMMU", True),
        (r"0x[0-9a-f]{8}\b", "magic 0x5678abcd", True),
        ("x", "", False),
        ("^$", "", True),
        ("a.b", "a\nb", False),
        (r"\(no\) \[x\]\*\?\{2\}", "(no) [x]*?{2}", True),
        ("(?:ab)+c", "ababc", True),
    ],
)
def test_a_pattern_is_searched_in_each_line(pattern: str, message: str, is_found: bool) -> None:
    assert is_in_message(pattern, message) is is_found


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "must be 1 to 200 characters"),
        ("x" * 201, "must be 1 to 200 characters"),
        ("(", r"is not a regular expression of RE2: missing \): \("),
        (r"(a)\1", "is not a regular expression of RE2: invalid escape sequence"),
        ("(?=a)b", "is not a regular expression of RE2: invalid perl operator"),
        ("a**", "is not a regular expression of RE2: bad repetition operator"),
        ("(?:(?:a?){30}){40}", "is not a regular expression of RE2: invalid repetition size"),
        (r"\pL{1000}", "is not a regular expression of RE2: pattern too large"),
    ],
)
def test_other_patterns_are_refused(
    pattern: str, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=problem):
        compiled_pattern(pattern)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(?:a|a)" * 6 + "a*a*a{100}b", "(?:(?:a?){30}){30}d", ".*.*.*.*x"]
)
def test_the_worst_patterns_end_soon(pattern: str) -> None:
    message = "\n".join(["b" + "a" * (MAX_LINE_CHARS - 2) + "c"] * 50)
    start_s = time.process_time()
    assert not is_in_message(pattern, message)
    assert time.process_time() - start_s < 5


def test_fifty_lines_of_500_characters_are_searched() -> None:
    full = "a" * 500
    assert is_in_message("xyz", "\n".join([full] * 49 + ["a" * 497 + "xyz"]))
    assert not is_in_message("xyz", "\n".join([full] * 49 + ["a" * 498 + "xyz"]))
    assert not is_in_message("xyz", "\n".join([full] * 50 + ["xyz"]))
