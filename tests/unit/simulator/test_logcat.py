"""The log: entries, times, and the two programs on a real file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.simulator import logcat
from harness.simulator.logcat import (
    LoggedLine,
    main,
    parse_line,
    parse_since,
)

ENTRY = LoggedLine(1700000000.25, 12, "W", "TAG", "a message")
STAMP = time.strftime("%m-%d %H:%M:%S", time.localtime(1700000000)) + ".250"


@settings(deadline=None)
@given(
    st.integers(0, 2**22),
    st.sampled_from("VDIWEF"),
    st.text(
        st.characters(exclude_characters="\t\r\n", exclude_categories=("Cs", "Z")), max_size=20
    ),
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=200),
)
def test_stored_lines_come_back(
    tmp_path_factory: pytest.TempPathFactory, pid: int, priority: str, tag: str, message: str
) -> None:
    path = tmp_path_factory.mktemp("log") / "main"
    logcat.append(path, priority, tag, message, pid=pid)
    back = parse_line(path.read_bytes().decode().removesuffix("\n"))
    assert back is not None
    assert (back.pid, back.priority, back.message) == (pid, priority, message)
    assert back.seconds == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize("line", ["", "x", "1.5 1 I t\tm", "1.500 1 Q t\tm", "1.500 1 I t m"])
def test_other_lines_are_no_entries(line: str) -> None:
    assert parse_line(line) is None


def test_a_text_of_lines_becomes_entries(tmp_path: Path) -> None:
    logcat.append(tmp_path / "log", "I", "t", "\none\r\ntwo\n", pid=1)
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.partition("\t")[2] for line in lines] == ["one", "two"]


def test_an_entry_is_printed_as_threadtime() -> None:
    assert ENTRY.shown() == f"{STAMP}    12    12 W TAG     : a message"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5", 5), (STAMP, None)],
)
def test_times(text: str, expected: float | None) -> None:
    since = parse_since(text, now=1700000000.0)
    assert since == pytest.approx(1700000000.25 if expected is None else expected)
    assert isinstance(since, int) is isinstance(expected, int)


@pytest.mark.parametrize("text", ["", "x", "-1", "12-45 00:00:00", "1e5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse_since(text, now=1700000000.0)


def test_the_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "log")

    def shown(*arguments: str) -> list[str]:
        assert main(["logcat", path, "-v", "threadtime", "-d", *arguments]) == 0
        return [line.rpartition(": ")[2] for line in capsys.readouterr().out.splitlines()[1:]]

    assert shown() == []
    for number in range(5):
        assert main(["log", path, "-t", f"T{number % 2}", "-p", "w", f"message {number}"]) == 0
    assert shown("-t", "2") == ["message 3", "message 4"]
    assert shown("-b", "crash") == []
    assert len(shown("-b", "main,crash")) == len(shown("-b", "main", "-b", "crash")) == 5
    later = time.strftime("%m-%d %H:%M:%S.000", time.localtime(time.time() + 100))
    assert shown("-t", later) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["logcat", "-d", "-v", "no"],
        ["logcat"],
        ["logcat", "-Q"],
        ["logcat", "-d", "*:Q"],
        ["log", "-p", "q", "x"],
    ],
)
def test_wrong_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    program, *rest = arguments
    assert main([program, str(tmp_path / "log"), *rest]) == 1
    assert capsys.readouterr().err.startswith(f"{program}: ")
