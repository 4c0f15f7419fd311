"""Any log is read within bounds; the filter of lines lets each line pass that a rule takes."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings, strategies as st

from harness.diagnosis import log_reader
from harness.diagnosis.error_chain import link_of
from harness.diagnosis.explain_log import explain
from harness.diagnosis.log_reader import (
    KERNEL,
    MAX_LINES,
    LineFilter,
    Origin,
    origin_of,
    patterns_of,
    read_log,
    rule_filter,
    texts_of,
)
from harness.diagnosis.rule_sources import own_rules
from tests.messages.corpus import corpus
from tests.properties import damaged, reached, reaches
from tests.unit.diagnosis.failure_rows import LOG_ROWS

LINE = "QnnDsp <E> Failed to find available PD for contextId 56"


def read(data: bytes) -> log_reader.ScannedLog:
    return read_log(io.BytesIO(data))


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        (LINE, [LINE]),
        (f"12-07 04:15:01.332 17202 17203 E tag : {LINE}", [f"tag : {LINE}"]),
        (f"   113: [ERROR] {LINE}", [LINE]),
        (f"> > 2025-09-25T11:36:36.950Z <E> {LINE}", [LINE]),
        (f"\x1b[31m     0.0ms [ ERROR ] {LINE}\x1b[0m", [LINE]),
        (f"{LINE} / err 1002 // device log: x", [LINE, "err 1002", "device log: x"]),
        ("/vendor/lib64/libOpenCL.so", ["/vendor/lib64/libOpenCL.so"]),
        ("3 of 3 nodes are not on the NPU", ["3 of 3 nodes are not on the NPU"]),
        ("   ", []),
    ],
)
def test_what_stands_before_a_text_is_left_out(line: str, texts: list[str]) -> None:
    assert list(texts_of(line)) == texts


def test_lines_are_counted_and_those_that_cannot_matter_left_out() -> None:
    log = read(f"hello\n\n{LINE}\r\n{LINE}\nbye".encode())
    assert [(line.number, line.text) for line in log.lines] == [(3, LINE)]
    assert (log.line_count, log.whole) == (5, True)


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8-sig", b""),
        ("utf-16", b""),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-16-be", b""),
        ("utf-16-le", b""),
    ],
)
def test_logs_of_windows_are_read(encoding: str, mark: bytes) -> None:
    log = read(mark + f"{LINE}\r\n".encode(encoding))
    assert [line.text for line in log.lines] == [LINE]


def test_what_stands_at_the_start_of_a_log_hides_nothing() -> None:
    assert LINE in read(b"\0" * 64 + b"\n" + LINE.encode()).lines[0].text
    assert read(f"錯 {LINE}".encode()).lines[0].text == f"錯 {LINE}"


def test_a_line_without_end_is_one_line() -> None:
    log = read(f"{'x' * 100_000} error 1002\n{LINE}".encode())
    assert [line.number for line in log.lines] == [1, 1, 2]
    assert log.lines[1].text.endswith("error 1002")
    assert log.line_count == 2


@pytest.mark.parametrize("index", [0, 700, 950, 16_100, 16_350, 1_048_500, 2_500_000])
def test_the_middle_of_a_line_of_megabytes_is_looked_at(index: int) -> None:
    log = read(b"x " * (index // 2) + LINE.encode() + b" y" * (3_000_000 - index // 2))
    assert any(LINE in line.text for line in log.lines)
    assert {line.number for line in log.lines} == {1}
    assert len(log.lines) < 10


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_a_line_that_a_terminal_cut_is_read_whole(columns: int) -> None:
    long = f"12-07 04:15:01.332 17202 17203 E qnn : {'x' * 2 * columns} {LINE}"
    cut = "\n".join(long[index : index + columns] for index in range(0, len(long), columns))
    log = read(f"before\n{cut}\nafter".encode())
    whole = next(line for line in log.lines if line.text.endswith(LINE))
    assert (whole.number, whole.origin.process) == (2, 17202)
    # with a longer line in it, no terminal has cut the log
    other = read(f"{'y' * (columns + 1)}\n{cut}".encode())
    assert all(line.origin.process is None or LINE not in line.text for line in other.lines)


def test_texts_that_differ_in_numbers_only_crowd_no_other_out() -> None:
    many = b"\n".join(b"QnnDsp error fd %d" % number for number in range(2 * MAX_LINES))
    log = read(LINE.encode() + b"\n" + many + b"\n" + LINE.encode())
    assert 2 < len(log.lines) < 100
    assert next(line.number for line in log.lines if line.text == LINE) == 1


def test_of_a_log_with_many_texts_its_end_is_kept() -> None:
    words = (
        f"qnn {a}{b}{c}{d}"
        for a in "abcdefgh"
        for b in "abcdefgh"
        for c in "abcdefgh"
        for d in "abcdefghijklmnopqrstuvwxyz"
    )
    log = read("\n".join([*words, LINE]).encode())
    assert len(log.lines) == MAX_LINES
    assert log.lines[-1].text == LINE


def test_empty_lines_are_counted_and_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    class CountingMock:
        def passes(self, line: bytes) -> bool:
            searched.append(len(line))
            return rule_filter().passes(line)

    monkeypatch.setattr(log_reader, "rule_filter", CountingMock)
    empty = 8 << 20
    log = read(b"\n" * empty + b"libQnnHtp.so: error 1009\n")
    assert (log.line_count, [line.number for line in log.lines]) == (empty + 1, [empty + 1])
    assert len(searched) < 2 << 20


def test_a_log_without_end_is_read_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "MAX_CHARS", 4096)
    log = read(b"x" * 100_000 + LINE.encode())
    assert not log.whole
    assert log.lines == ()


@reaches(0.7)
@given(st.binary(max_size=400), st.binary(max_size=40))
def test_any_bytes_are_read_and_explained(before: bytes, behind: bytes) -> None:
    log = read(before + b"\n" + LINE.encode() + b"\n" + behind)
    assert log.whole
    if b"\0" not in before[:2] and before[:2] not in (b"\xff\xfe", b"\xfe\xff"):  # else UTF-16
        reached()
        assert LINE in [line.text for line in log.lines]
    assert explain(log.lines) == explain(log.lines)


@reaches(0.35)
@given(damaged(f"12-07 04:15:01.332 17202 17203 E tag : {LINE}\nerr 1002\n"))
def test_any_text_is_read_and_explained(text: str) -> None:
    for cause in explain(read(text.encode("utf-8", "replace")).lines).diagnoses:
        reached()
        assert cause.words


MORNING = 4 * 3600 + 15 * 60 + 1.5


def on(month: int, day: int) -> float:
    return (month * 31 + day) * 86_400 + MORNING


@pytest.mark.parametrize(
    ("before", "process", "time"),
    [
        ("12-07 04:15:01.500 17202 17203 E tag : ", 17202, on(12, 7)),
        ("2026-12-07 04:15:01.500 17202 17203 E tag : ", 17202, on(12, 7)),
        ("12-07 04:15:01.500 u0_a12 17202 17203 E tag : ", 17202, on(12, 7)),
        ("12-07 04:15:01.500 10123 17202 17203 E tag : ", 17202, on(12, 7)),
        ("2026-12-07 04:15:01.500 17202-17203 com.x  E  ", 17202, on(12, 7)),
        ("2026-12-07 04:15:01.500 17202-17203/com.x E/tag: ", 17202, on(12, 7)),
        ("E/tag     (17202): ", 17202, None),
        ("Dec  7 04:15:01.5 board app[4711]: ", 4711, on(12, 7)),
        ("2026-12-07T04:15:01.5+0000 board app[4711]: ", 4711, on(12, 7)),
        ("Dec 07 04:15:01 board kernel: ", KERNEL, on(12, 7) - 0.5),
        ("[Thu Dec  7 04:15:01 2026] ", None, on(12, 7) - 0.5),
        ("04:15:01,500 ", None, MORNING),
        ("[   26.079757] ", KERNEL, None),
        ("<6>[    0.000000] ", KERNEL, None),
        ("     0.0ms [ ERROR ] ", None, None),
        ("2026-12-07 04:15:01.500 [E:onnxruntime:, x.cc:249 F] ", None, on(12, 7)),
        ("", None, None),
    ],
)
def test_what_stands_before_a_text(before: str, process: int | None, time: float | None) -> None:
    assert origin_of(f"{before}QnnDsp <E> Failed to load skel, error: 1002") == Origin(
        process, time, loud=True
    )


@given(st.text(max_size=300))
def test_any_line_has_an_origin(line: str) -> None:
    origin = origin_of(line)
    assert origin.process is None or origin.process >= 0
    assert origin.time is None or origin.time >= 0


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
    with patch.object(log_reader, "rule_filter", EverythingMock):
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
        (r"\dx", "\u0660x", True),
        (r"a\sb", "a\u2003b", True),
        (r"a\sb", "a\x1cb", True),
        ("mmap64 failed", "mmap64 failed\u00e9", True),
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
