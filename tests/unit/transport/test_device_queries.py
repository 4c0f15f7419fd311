"""The parts of a device's answer, cut anywhere and with anything in between."""

import pytest
from hypothesis import given, strategies as st

from harness.transport.device_queries import (
    Section,
    first_line,
    free_storage,
    integer,
    memory,
    parse_sections,
    split_sections,
)
from tests.properties import damaged, reached, reaches

TOKEN = "0123456789abcdef"


def answer(parts: dict[str, bytes]) -> bytes:
    token = TOKEN.encode()
    return b"".join(
        b"\n@qnn-harness:%s %s\n%s\n@qnn-harness:%s =\n" % (token, name.encode(), content, token)
        for name, content in parts.items()
    )


NAMES = st.from_regex(r"[a-z_0-9]{1,20}", fullmatch=True)
CONTENTS = st.binary(max_size=60) | st.just(b"\n@qnn-harness:bad =\n")


@given(st.dictionaries(NAMES, CONTENTS, max_size=5))
def test_what_was_sent_is_found(parts: dict[str, bytes]) -> None:
    expected = {name: Section(content, whole=True) for name, content in parts.items()}
    assert split_sections(b"noise" + answer(parts), TOKEN) == expected


@given(st.dictionaries(NAMES, CONTENTS, max_size=5), st.integers(0, 500))
def test_an_answer_cut_anywhere(parts: dict[str, bytes], length: int) -> None:
    sections = split_sections(answer(parts)[:length], TOKEN)
    assert list(sections) == list(parts)[: len(sections)]
    assert all(section.whole for section in list(sections.values())[:-1])
    for name, section in sections.items():
        if section.whole:
            assert section.content == parts[name]


@reaches(0.3)
@given(damaged(answer({"a": b"one\ntwo", "b": b""}).decode()))
def test_no_answer_upsets_it(text: str) -> None:
    for section in split_sections(text.encode(), TOKEN).values():
        reached()
        assert section.content in text.encode()
    for lines in parse_sections(text).values():
        assert all(line and line in text for line in lines)


def test_parts_without_a_token_end_where_the_next_one_begins() -> None:
    text = "noise\r\n@qnn-harness:a\r\n one \r\n\r\ntwo\r\n@qnn-harness:b\r\n@qnn-harness:c\r\n"
    assert parse_sections(text) == {"a": ["one", "two"], "b": [], "c": []}
    assert parse_sections("@qnn-harness:end") == {"end": []}
    assert parse_sections("a @qnn-harness:end") == {}


@pytest.mark.parametrize(
    ("lines", "free"),
    [
        (["/dev/x 9 5 4 60% /"], 4096),
        (["/dev/x 9 5 4 60% /", "free 3 512"], 1536),
        (["/dev/x 9 5 1 60% /", "free 300 512"], 1024),
        (["free 300 512"], 153600),
        (["/dev/x 9 9 -1 100% /"], 0),
        (["9 5 4 60% /"], 4096),
        (["/dev/a/long/name", "9 5 4 60% /"], 4096),
        (["/dev/x 9 5 4 60% /mnt 7 50%/x 50% y"], 4096),
        (["5 60% /"], None),
        ([], None),
    ],
)
def test_the_smaller_one_of_what_is_free_holds(lines: list[str], free: int | None) -> None:
    assert free_storage(["head", *lines]) == free


def test_values_of_a_part() -> None:
    for text, number in (("9" * 18, 10**18 - 1), ("9" * 19, None), ("-1", None), (None, None)):
        assert integer(text) == number
    sections = parse_sections("@qnn-harness:memory\nMemTotal:  9 kB\nMemFree:   7 kB\nOdd: x kB\n")
    names = ("MemTotal", "MemFree", "Mem", "Odd")
    assert [memory(sections, name) for name in names] == [9216, 7168, None, None]
    assert memory({}, "MemTotal") is None
    lines = {"a": ["x" * 300, "y"], "b": []}
    assert [first_line(lines, name) for name in "abc"] == ["x" * 200, None, None]
