"""A file with each engine: which of them fails, and which do not take it; real libraries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns
from tests.integration.tools.cli.test_run_ort import EMBEDDED

TOO_NEW = ("--qnn=2.47.0", "--ort=1.31.1")


@pytest.mark.slow
def test_which_of_the_engines_it_fails_with(lab: DeviceRuns) -> None:
    name = Path(shutil.copy(EMBEDDED, lab.folder)).name
    asked = ("bisect", f"--case={name}::test_contexts", f"--lab={lab.file}", *TOO_NEW)
    done = lab.qnn_harness(*asked, "--axis=engine")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert {"with qnn: 2.47.0 is good", "with ort: 2.47.0 is bad"} <= set(lines)
    (left,) = (line for line in lines if line.startswith("executorch is left out: "))
    assert "ExecuTorch runs a .pte, and this is: epcontext" in left
    # what was left out is kept: it is told again, and not tried again
    again = lab.qnn_harness("bisect", "--resume", f"--reports={lab.reports}")
    assert (again.returncode, again.stdout.splitlines()[-4:]) == (0, lines[-4:])
    assert "is left out" not in again.stderr
    again = lab.qnn_harness("bisect", "--resume", f"--reports={lab.reports}", "--json")
    told = {one["engine"]: one for one in json.loads(again.stdout)}
    assert [*told] == ["qnn", "ort", "executorch", "litert"]
    assert (told["executorch"]["left_out"], told["executorch"]["finished"]) == (left, False)
    assert not {"qnn", "ort"} & {name for name, one in told.items() if one.get("left_out")}
    files = sorted(lab.reports.glob("*-bisect/result.json"))
    found = {one["engine"]: one for one in (json.loads(file.read_text()) for file in files)}
    assert [*found] == ["qnn", "ort"]
    assert found["ort"]["case"] == f"{name}::test_session"
    assert found["ort"]["before"]["error"]["api"] == "CreateSession"
    report = (lab.reports / found["ort"]["bisect"] / "report.md").read_text()
    assert report.startswith("# qnn with ort: 2.47.0 is bad; CreateSession")
    for one in found.values():
        (journal,) = (lab.reports / one["bisect"]).rglob("results.jsonl")
        assert json.loads(journal.read_text().splitlines()[-1])["engine"] == one["engine"]


@pytest.mark.slow
def test_versions_of_an_engine_are_searched_with_those_that_have_them(lab: DeviceRuns) -> None:
    name = Path(shutil.copy(EMBEDDED, lab.folder)).name
    options = ("--axis=ort,engine", "--versions=1.24.1,1.31.1", "--qnn=2.47.0")
    done = lab.qnn_harness("bisect", f"--case={name}::test_session", f"--lab={lab.file}", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "with ort: last good 1.24.1, first bad 1.31.1" in lines
    (left,) = (line for line in lines if line.startswith("qnn is left out: "))
    assert "the case does not use ONNX Runtime" in left
