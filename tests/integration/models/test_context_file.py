"""Context binaries that a user has, in a folder of their own: run, planned, refused with words."""

import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import ContextFor
from tests.integration.device_runs import DeviceRuns

FOREIGN = min((Path(__file__).parents[2] / "field").glob("*.bin"))

SUITE = """
import pytest
from harness import Bench, ContextFile, Model

MINE = ContextFile("model.bin", inputs="in/", expected="out/", tolerance=0.01)
WRONG = [
    ContextFile("nowhere.bin"),
    ContextFile("model.bin", inputs=["in/x.raw", "in/x.raw"], name="two-inputs"),
    ContextFile("model.bin", expected="in", name="wrong-outputs"),
]


@pytest.mark.device(backend="htp", qnn=["2.47.0", "2.51.0"])
@pytest.mark.parametrize("context", [MINE], ids=str)
def test_stays_resident(bench: Bench, context: ContextFile) -> None:
    run = bench.resident(context, 66)
    run.check()
    assert run.loaded == 66


@pytest.mark.device(backend="htp", qnn="2.51.0")
@pytest.mark.parametrize("context", [ContextFile("model.bin"), Model("tiny")], ids=str)
def test_alone(bench: Bench, context: ContextFile) -> None:
    bench.run_contexts([context], 3, "sequential").check()


@pytest.mark.device(backend="htp", qnn="2.51.0")
@pytest.mark.parametrize("context", WRONG, ids=str)
def test_wrong(bench: Bench, context: ContextFile) -> None:
    bench.run_contexts(context, 5, "window", window=2).check()


@pytest.mark.device(backend="htp", qnn="2.51.0")
@pytest.mark.parametrize("context", [(ContextFile("model.bin"), ContextFile("b/model.bin"))])
def test_many(bench: Bench, context: tuple[ContextFile, ...]) -> None:
    for one in (*context, context[0]):
        bench.resident(one).check()
"""


@pytest.fixture
def folder(context_for: ContextFor, tmp_path: Path) -> Path:
    """A suite of a user beside the context binary that it takes."""
    context = context_for("tiny", "2.51.0")
    folder = tmp_path / "mine"
    for name in ("in", "out"):
        (folder / name).mkdir(parents=True)
    shutil.copyfile(context.path, folder / "model.bin")

    shutil.copyfile(context.inputs[0], folder / "in/x.raw")
    shutil.copyfile(context.expected[0], folder / "out/y.raw")

    (folder / "b").mkdir()
    shutil.copyfile(FOREIGN, folder / "b/model.bin")
    (folder / "test_mine.py").write_text(SUITE)
    return folder


@pytest.mark.nightly
def test_files_are_run_and_what_is_wrong_with_them_is_told(lab: DeviceRuns, folder: Path) -> None:
    finished = lab.run("--dry-run", suites=folder)
    assert finished.code == 2, finished.output
    assert "test_alone[sim-v73-htp-2.51.0-model.bin]: probe (" in finished.output
    assert finished.output.count("cannot run: ") == 2, finished.output
    assert f"{folder}/nowhere.bin: " in finished.output
    finished = lab.run(suites=folder)
    assert finished.code == 1, finished.output
    old = finished.case(context="model.bin", qnn="2.47.0")
    assert old["axes"]["compiler"] is None
    assert old["runtime"]["contexts_by"].startswith("2.51.0.")
    assert [finding["code"] for finding in old["preflight"]] == ["context-newer"]
    assert (old["outcome"], old["error"]["code"]) == ("failed", 5000)
    new, alone = [case for case in finished.cases if case["axes"]["context"] == "model.bin"][1:]
    assert (new["outcome"], new["measurements"]["loaded"]) == ("passed", 66)
    facts = new["measurements"]["context_files"]["model.bin"]
    assert (facts["inputs"], facts["outputs"]) == ("given", "compared")
    assert (facts["io_bytes"], facts["spill_fill_bytes"]) == (16384, 0)
    facts = alone["measurements"]["context_files"]["model.bin"]
    assert (facts["inputs"], facts["outputs"]) == ("generated", "nothing expected")
    assert (alone["outcome"], alone["axes"]["compiler"]) == ("passed", None)
    compiled = finished.case(context="tiny")
    assert (compiled["outcome"], compiled["axes"]["compiler"]) == ("passed", "2.51.0")
    files = finished.case(context=["model.bin"] * 2)["measurements"]["context_files"]
    assert {name: facts["htp_arch"] for name, facts in files.items()} == {
        "model.bin": facts["htp_arch"],
        "model.bin (2)": None,
    }
    for name, place in (("nowhere.bin", "nowhere.bin: "), ("two-inputs", "model.bin: inputs: ")):
        wrong = finished.case(context=name)
        assert (wrong["outcome"], wrong["cause"]) == ("error", "config")
        assert f"{folder}/{place}" in wrong["error"]["message"]
    differs = finished.case(context="wrong-outputs")
    assert (differs["outcome"], differs["error"]["api"]) == ("failed", "QnnGraph_execute")
    assert "y differs by up to " in differs["error"]["message"]


def test_what_is_no_source_and_what_is_no_version(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "test_slips.py"
    slip = "import pytest\n@pytest.mark.device(qnn={})\ndef test_it(bench):\n    {}\n"
    suite.write_text(slip.format("2.51", "pass"))
    finished = lab.run(suites=tmp_path)
    assert finished.code == 2
    assert "qnn in the marker of test_it: " in finished.output
    suite.write_text(slip.format("'2.51.0'", "bench.resident('model.bin')"))
    suite.with_name("test_more.py").write_text(
        "class Mine:\n    compiled, tolerance = False, 0.0\n    seen_from = lambda self, _: self\n"
        "    __repr__ = lambda self: 'mine'\n" + slip.format("'2.51.0'", "bench.resident(Mine())")
    )
    finished = lab.run(suites=tmp_path)
    assert (finished.code, {case["cause"] for case in finished.cases}) == (2, {"config"})
    problems = sorted(case["error"]["message"].split(": ")[0] for case in finished.cases)
    assert problems == ["test_more.py:8", "test_slips.py:4"]
