"""The log: entries, filters, formats, times, and the two programs on a real file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.device.simulator import logcat
from harness.device.simulator.logcat import (
    LogFilter,
    LoggedLine,
    formatter,
    main,
    parse_line,
    parse_since,
)

ENTRY = LoggedLine(1700000000.25, 12, 13, "W", "TAG", "a message")
STAMP = time.strftime("%m-%d %H:%M:%S", time.localtime(1700000000)) + ".250"


@settings(deadline=None)
@given(
    st.integers(0, 2**40),
    st.integers(0, 2**22),
    st.sampled_from("VDIWEF"),
    st.text(
        st.characters(exclude_characters="\t\r\n", exclude_categories=("Cs", "Z")), max_size=20
    ),
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=200),
)
def test_stored_lines_come_back(ms: int, pid: int, priority: str, tag: str, message: str) -> None:
    entry = LoggedLine(round(ms / 1000, 3), pid, pid, priority, tag, message)
    back = parse_line(entry.line())
    assert back is not None
    assert back[1:4] + back[5:] == entry[1:4] + entry[5:]
    assert back.seconds == pytest.approx(entry.seconds)


@pytest.mark.parametrize("line", ["", "x", "1.5 1 1 I t\tm", "1.500 1 1 Q t\tm", "1.500 1 1 I t m"])
def test_other_lines_are_no_entries(line: str) -> None:
    assert parse_line(line) is None


def test_a_text_of_lines_becomes_entries() -> None:
    entries = logcat.entries_of("I", "t", "\none\r\ntwo\n", pid=1, seconds=2.0)
    assert [entry.message for entry in entries] == ["one", "two"]


@pytest.mark.parametrize(
    ("words", "silent", "admitted"),
    [
        ([], False, True),
        ([], True, False),
        (["TAG"], True, True),
        (["TAG:E"], False, False),
        (["TAG:W"], True, True),
        (["OTHER:V", "*:S"], False, False),
        (["*:W"], False, True),
        (["TAG:S"], False, False),
    ],
)
def test_filters(words: list[str], silent: bool, admitted: bool) -> None:
    assert LogFilter(words, silent=silent).admits(ENTRY) is admitted


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], f"{STAMP}    12    13 W TAG     : a message"),
        (["threadtime", "epoch"], "1700000000.250    12    13 W TAG     : a message"),
        (["brief"], "W/TAG     (   12): a message"),
        (["raw"], "a message"),
        (["tag"], "W/TAG     : a message"),
        (["time"], f"{STAMP} W/TAG     (   12): a message"),
        (["raw,epoch"], "a message"),
        (["time", "UTC", "year"], "2023-11-14 22:13:20.250 +0000 W/TAG     (   12): a message"),
    ],
)
def test_formats(words: list[str], expected: str) -> None:
    assert formatter(words)(ENTRY) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5", 5), ("1700000000.250", 1700000000.25), (STAMP, None), (f"2023-{STAMP}", 1700000000.25)],
)
def test_times(text: str, expected: float | None) -> None:
    found = parse_since(text, now=1700000000.0)
    assert found == pytest.approx(1700000000.25 if expected is None else expected)
    assert isinstance(found, int) is isinstance(expected, int)


@pytest.mark.parametrize("text", ["", "x", "-1", "12-45 00:00:00", "1e5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse_since(text, now=1700000000.0)


def test_the_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "log")

    def shown(*arguments: str) -> list[str]:
        assert main(["logcat", path, "-v", "tag", "-d", *arguments]) == 0
        return capsys.readouterr().out.splitlines()[1:]

    assert shown() == []
    for number in range(5):
        assert main(["log", path, "-t", f"T{number % 2}", "-p", "w", f"message {number}"]) == 0
    assert shown("-t", "2") == ["W/T1      : message 3", "W/T0      : message 4"]
    assert shown("-s", "T1") == ["W/T1      : message 1", "W/T1      : message 3"]
    assert shown("-T", "1", "-s", "T1") == ["W/T1      : message 3"]
    assert shown("-e", "e [12]") == ["W/T1      : message 1", "W/T0      : message 2"]
    assert shown("-m", "1") == ["W/T0      : message 0"]
    assert shown("-b", "crash") == []
    assert len(shown("-b", "main,crash")) == 5
    assert shown("-T", f"{time.time() + 100:.3f}") == []
    assert main(["logcat", path, "-c"]) == 0
    assert shown() == []


@pytest.mark.parametrize(
    "arguments",
    [["logcat", "-v", "no"], ["logcat", "-Q"], ["logcat", "*:Q"], ["log", "-p", "q", "x"]],
)
def test_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    program, *rest = arguments
    assert main([program, str(tmp_path / "log"), *rest]) == 1
    assert capsys.readouterr().err.startswith(f"{program}: ")
