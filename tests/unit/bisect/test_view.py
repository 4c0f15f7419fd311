"""Progress of a bisection: each run on a terminal, plain lines to a pipe."""

from __future__ import annotations

import io
import re
from pathlib import Path

from harness.bisect.search import AxisSpec
from harness.cli.bisect import BisectProgress
from tests.unit.bisect.scripted_runs import ScriptedRuns, new_bisection


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_by(stream: io.StringIO, folder: Path) -> str:
    tries = []

    def outcome_at(point: tuple[str, ...], _: str) -> str:
        tries.append(point)
        return "lab" if len(tries) in (2, 3) else "failed" if point[0] == "3" else "passed"

    spec = AxisSpec(axis="qnn", candidates=("1", "2", "3"))
    bisection = new_bisection(folder, spec, ScriptedRuns(outcome_at), held={"compiler": "1"})
    bisection.watcher = BisectProgress(bisection.folder.read(), bisection.folder.path, stream)
    bisection.run()
    return stream.getvalue()


def test_a_terminal_sees_each_run(tmp_path: Path) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown_by(Terminal(), tmp_path))
    assert text.startswith("bisecting qnn over 3 versions, 1 to 3 (compiler 1 held): at most 3 ")
    lines = [line.rpartition("\r\x1b[2K")[2] for line in text.strip().split("\n")[2:]]
    assert [line.split()[:3] for line in lines] == [
        ["1", "1", "good"],
        ["2", "3", "unknown"],
        ["2", "3", "unknown"],
        ["the", "lab", "failed;"],
        ["2", "3", "bad"],
        ["3", "2", "good"],
    ]


def test_a_pipe_gets_the_bound_the_folder_and_a_plain_line_for_each_run(tmp_path: Path) -> None:
    text = shown_by(io.StringIO(), tmp_path)
    assert text.isprintable() or ("\x1b" not in text and "\r" not in text)
    lines = text.splitlines()
    assert "at most 3 runs" in lines[0]
    assert Path(lines[1]).is_dir()
    assert [line.split()[:3] for line in lines[2:]] == [
        ["1", "1", "good"],
        ["2", "3", "unknown"],
        ["2", "3", "unknown"],
        ["the", "lab", "failed;"],
        ["2", "3", "bad"],
        ["3", "2", "good"],
    ]
