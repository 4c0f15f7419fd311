"""Progress of a bisection: a plain line for each run."""

from __future__ import annotations

import io
from pathlib import Path

from harness.bisect.search import AxisSpec
from harness.cli.bisect import BisectProgress
from tests.unit.bisect.scripted_runs import ScriptedRuns, new_bisection


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


def test_the_bound_the_folder_and_a_plain_line_for_each_run(tmp_path: Path) -> None:
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
