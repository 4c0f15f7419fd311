"""The two programs of the log on a real file."""

import time
from pathlib import Path

import pytest

from harness.simulator.logcat import main


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
