"""The filter of lines lets pass every line that a rule takes, and most others not."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings, strategies as st

from harness.diagnosis import any_log
from harness.diagnosis.any_log import LineFilter, patterns_of, read_log, rule_filter
from harness.diagnosis.chain import link_of
from harness.diagnosis.explanation import explain
from harness.diagnosis.rules import own_rules
from tests.messages.corpus import corpus
from tests.properties import reached, reaches
from tests.unit.diagnosis.failure_rows import LOG_ROWS

RULES = own_rules()

PATTERNS = patterns_of(RULES)
LINES = [
    *(line for _, text in LOG_ROWS for line in text.splitlines() if line.strip()),
    *(sample.sample for sample in corpus() if sample.role != "nothing"),
]


class EverythingMock:
    """Lets every line pass."""

    def passes(self, line: bytes) -> bool:
        return True


@contextmanager
def all_lines() -> Iterator[None]:
    with patch.object(any_log, "rule_filter", EverythingMock):
        yield


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_has_words(pattern: str) -> None:
    assert not LineFilter([pattern]).passes(b"~")
    assert not re.search(r"\{,", pattern), "RE2 takes {,9} for letters"


def test_each_line_that_a_rule_takes_passes() -> None:
    matching = [line for line in LINES if any(re.search(pattern, line) for pattern in PATTERNS)]
    assert len(matching) > 500
    assert [line for line in matching if not rule_filter().passes(line.encode())] == []


@pytest.mark.parametrize(
    ("pattern", "line", "passes"),
    [
        ("SSR [Dd]etected", "an ssr DETECTED", True),
        ("SSR [Dd]etected", "an ssr", False),
        ("abc(?:def|gh)?i", "xabcghi", True),
        ("(?!not )there(?<=e)", "there", True),
        (r"^(?=.*(?:one|[)(]two(?!s))).*three", "three two", True),
        (r"^(?=.*one).*three", "one", False),
        ("(?i)skel", "\u017fKel", True),
        ("(?i)skel", "\u017f\u212ael", True),
        ("(?i)alike", "al\u0131ke", True),
        ("nothing", "err code: 0x3ea", True),
        ("nothing", "err code: none", False),
        ("nothing", "terrain 5", False),
    ],
)
def test_a_line_passes_if_it_has_the_words(pattern: str, line: str, passes: bool) -> None:
    assert LineFilter([pattern]).passes(line.encode()) is passes


def test_what_no_rule_takes_is_mostly_left_out() -> None:
    lines = [f"I ActivityManager: Start proc {n} for service, {n} buffers" for n in range(1000)]
    assert not any(rule_filter().passes(line.encode()) for line in lines)


@reaches(0.5)  # a text of several lines may match as a whole only
@settings(max_examples=300)
@given(st.data(), st.sampled_from(PATTERNS))
def test_what_a_pattern_matches_passes(data: st.DataObject, pattern: str) -> None:
    text = data.draw(st.from_regex(re.compile(pattern)))
    for line in text.split("\n"):
        if re.search(pattern, line):
            reached()
            assert rule_filter().passes(line.encode("utf-8", "replace"))


@reaches(0.9)
@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(LINES),
            st.text("abcdefgh ", min_size=1, max_size=90),
            st.sampled_from(LINES).flatmap(
                lambda line: st.integers(0, len(line)).map(lambda start: line[start:])
            ),
        ),
        max_size=30,
    )
)
def test_the_causes_are_those_of_all_lines(lines: list[str]) -> None:
    # of a line cut off in front of its number nothing says that it is a code
    codes = (line for line in lines if link_of(line).code is not None)
    assume(all(rule_filter().passes(line.encode()) for line in codes))
    log = "\n".join(lines).encode("utf-8", "replace")
    with all_lines():
        unfiltered = explain(read_log(io.BytesIO(log)).lines)
    reached()
    assert explain(read_log(io.BytesIO(log)).lines) == unfiltered


@reaches(0.9)
@given(st.binary(max_size=300))
def test_any_bytes_are_looked_at(line: bytes) -> None:
    reached()
    assert rule_filter().passes(line) in (True, False)
