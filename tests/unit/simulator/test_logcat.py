"""The log: entries, times, and the two programs on a real file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.simulator import logcat
from harness.simulator.logcat import main, parse_line


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
