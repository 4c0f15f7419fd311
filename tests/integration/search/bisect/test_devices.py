"""A case on several kinds of simulated devices, real libraries: which of them it fails on."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from harness.ground.facts.versions import QNN_WHEELS
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.forked import run_module
from tests.integration.search.bisect.bisections import Done, command, interrupted, refused

QNN = list(QNN_WHEELS)
LAB = """schema: 1
devices:
  - {name: auto, simulated: true, soc: SA8295, target: linux-x64}
  - {name: phone-1, simulated: true, soc: QCS8550, target: linux-x64}
  - {name: phone-2, simulated: true, soc: SM8650, target: linux-x64}
  - {name: phone-3, simulated: true, soc: SM8650, target: linux-x64}
"""
# what is too much for newer runtimes is held on one kind only
SUITE = """
import pytest
from harness import Bench, Model

@pytest.mark.takes_contexts("workload")
@pytest.mark.device(backend="htp", soc=("QCS8550", "SM8650"))
@pytest.mark.parametrize("workload", [Model("io-heavy", 56)], ids=str)
def test_app(bench: Bench, workload: Model) -> None:
    bench.run_contexts(workload, 66 if bench.device.soc == "SM8650" else 1, "resident").check()
"""


@pytest.fixture
def case(lab: DeviceRuns) -> str:
    lab.file.write_text(LAB)
    suite = lab.folder / "suite/test_app.py"
    suite.parent.mkdir()
    suite.write_text(SUITE)
    shutil.copy(ROOT / "pyproject.toml", suite.parent)
    return "test_app.py::test_app[phone-1-htp-2.51.0-io-heavy-56mb]"


def asked(lab: DeviceRuns, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in the folder of the suite, as lines for a person."""
    words = [one for one in command(lab, *arguments)[2:] if one != "--json"]
    return run_module(words, lab.folder / "suite", lab.environment, 600)


def results(lab: DeviceRuns) -> dict[str, dict[str, Any]]:
    files = sorted(lab.reports.glob("*-bisect/result.json"))
    found = [json.loads(file.read_text()) for file in files]
    return {one["on"]: one for one in found}


@pytest.mark.slow
def test_which_kind_of_device_it_fails_on(lab: DeviceRuns, case: str) -> None:
    held = ("--qnn", QNN[2], "--compiler", QNN[0])
    done = asked(lab, "--case", case, "--axis", "soc", *held)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert f"on qcs8550: {QNN[2]} is good" in lines
    assert f"on sm8650: {QNN[2]} is bad" in lines
    (left,) = (line for line in lines if line.startswith("sa8295 is left out: "))
    assert "auto: needs soc QCS8550 or SM8650, has SA8295" in left
    found = results(lab)
    assert set(found) == {"qcs8550", "sm8650"}
    assert found["sm8650"]["devices"] == ["phone-2", "phone-3"]
    assert found["sm8650"]["before"]["error"]["symbol"] == "QNN_COMMON_ERROR_MEM_ALLOC"
    report = (lab.reports / found["sm8650"]["bisect"] / "report.md").read_text()
    assert report.startswith(f"# qnn on sm8650: {QNN[2]} is bad; QnnContext")


@pytest.mark.nightly
def test_from_which_version_on_each_kind_of_device(lab: DeviceRuns, case: str) -> None:
    words = ("--case", case, "--axis", "qnn,device", "--device", "auto,phone-1,phone-2,phone-3")
    suite = lab.folder / "suite"
    words = (*words, "--compiler", QNN[0])
    errors = interrupted(lab, *words, cwd=suite, number="3")
    assert "auto is left out: " in errors
    assert "to go on with all 3 bisections: " in errors
    done = asked(lab, "--resume")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-3:-1] == [
        "on phone-1: no change: all 4 that were run are good",
        f"on phone-2 and phone-3: last good {QNN[1]}, first bad {QNN[2]}",
    ]
    assert lines[-1].startswith("auto is left out: ")
    for one in results(lab).values():
        at = [tuple(run["at"]) for run in one["runs"]]
        assert len(at) == len(set(at)), "nothing is run twice"


def test_where_it_fits_none_it_says_why_and_leaves_nothing(lab: DeviceRuns, case: str) -> None:
    suite = lab.folder / "suite/test_app.py"
    suite.write_text(SUITE.replace('"QCS8550", ', "").replace('"SM8650")', '"SM8750",)'))
    done = asked(lab, "--case", case, "--axis", "device", "--device", "auto,phone-1")
    assert done.returncode == 2, done.stdout
    assert "phone-1: needs soc SM8750, has QCS8550" in done.stderr
    assert not list(lab.reports.glob("*-bisect"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--axis", "qnn,device", "--device", "phone-1"), "phone-1 is the only device"),
        (("--axis", "device", "--device", "phone-1,phone-9"), "'phone-9' is not in the lab"),
        (("--axis", "qnn,devise"), "(valid: qnn, ort, compiler, device, soc, engine)"),
    ],
)
def test_wrong_input(
    lab: DeviceRuns,
    case: str,
    arguments: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(lab.folder / "suite")
    done: Done = refused(lab, "--case", case, *arguments)
    assert (done.code, says in done.errors) == (2, True), done.errors
