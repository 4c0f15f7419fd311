"""`qnn-harness model`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.bisect.bad_condition import Judged, Question
from harness.bisect.search_loop import RunEnd
from harness.cli.model import model
from harness.cli.model_reduce import _Progress
from harness.containers.artefact import ArtefactError
from harness.containers.open import open_artefact
from harness.models.builtin_models import Model
from harness.models.inspection_report import (
    ContextReport,
    Inspection,
    inspection_lines,
    model_report,
)
from harness.reduce.reduction import Reduction
from harness.reduce.subject import Way
from tests.snapshots import Snapshot
from tests.unit.containers.made import FIELD
from tests.unit.reduce.test_reduction import ScriptedRuns, reduced, two_others

PTE = FIELD / "executorch-3-contexts.pte"


def test_extract_says_what_was_copied(tmp_path: Path, snapshot: Snapshot) -> None:
    completed = CliRunner().invoke(model, ["extract", str(PTE), "--output", str(tmp_path / "out")])
    assert completed.exit_code == 0
    assert completed.output == snapshot
    assert len(open_artefact(tmp_path / "out/manifest.json").pieces) == 3


def test_of_many_contexts_the_first_are_shown(snapshot: Snapshot) -> None:
    one = ContextReport("m.pte", "executorch", "0", "context", 0, 1000, "ab", {}, build_id="v2")
    other = replace(one, origin="1", size=3000, memory_bytes=5000)
    report = Inspection(1, "2.51.0", (one, other) * 5, ())
    short, long = [*inspection_lines(report)], [*inspection_lines(report, whole=True)]
    assert (len(long), len(short)) == (31, 25)
    assert short[:-1] == long[:24]
    assert short[-4:] == snapshot
    # the only one is called like its file
    assert [*inspection_lines(replace(report, contexts=(one,)))] == snapshot


def test_models_are_no_contexts(tmp_path: Path, snapshot: Snapshot) -> None:
    dlc = ContextReport("a.dlc", "dlc", "", "dlc", 0, 1000, "ab", {})
    assert [*inspection_lines(Inspection(1, "2.51.0", (dlc,), ()))] == snapshot
    (file := tmp_path / "m.onnx").write_bytes(Model("tiny").serialized())
    assert [*inspection_lines(Inspection(1, "2.51.0", (), (), (model_report(file),)))] == snapshot


def test_an_output_that_other_nodes_read_too_is_one(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xyz"]
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    file = tmp_path / "m.onnx"
    file.write_bytes(helper.make_model(graph).SerializeToString())
    assert model_report(file).outputs == ("y: float32 [2]", "z: float32 [2]")


def test_a_damaged_file_is_told_with_its_place(tmp_path: Path, snapshot: Snapshot) -> None:
    cut = tmp_path / "cut.pte"
    cut.write_bytes(PTE.read_bytes()[:5000])
    with snapshot.raises(ArtefactError):
        CliRunner().invoke(
            model, ["extract", str(cut), "--output", str(tmp_path / "o")], catch_exceptions=False
        )


def test_a_way_that_fails_otherwise_is_not_said_to_pass(capsys: pytest.CaptureFixture[str]) -> None:
    for answer, why in (("good", "passed"), ("untestable", "failed: x 1"), ("bad", "failed: y 2")):
        question = Question(at=Way((0,), "resident").point, number=1)
        judged = Judged(answer, why)  # type: ignore[arg-type]
        _Progress().on_answer(question, judged, RunEnd(1, None, None, "", 1.0))
    names = [line.split()[0] for line in capsys.readouterr().err.splitlines()]
    assert names == ["passes", "other", "fails"]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("answers", [0, 1, 3])
def test_ctrl_c_says_how_to_go_on_and_concludes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int, as_json: bool
) -> None:
    def stopped(contents: list[bytes], residency: str, number: int) -> str:
        completed = number > answers
        return "interrupted" if completed else two_others(contents, residency, number)

    result = reduced(tmp_path, two_others, [0, 1, 1, 0, 1])
    folder, resume, runs = result.folder.path, Reduction.resume, ScriptedRuns(stopped)
    result.folder.close()
    monkeypatch.setattr(
        Reduction, "resume", lambda path, words, **more: resume(path, words, run=runs, **more)
    )
    words = ["reduce", "--resume", str(folder), *(["--json"] if as_json else [])]
    completed = CliRunner().invoke(model, words, standalone_mode=False)
    assert completed.return_value == 130, completed.exception
    assert completed.stderr.endswith(f"qnn-harness model reduce --resume {folder}\n")
    assert runs.number == answers + 1
    if as_json:
        content = json.loads(completed.stdout)
        assert (content["runs"], content["minimal"], content["exit_code"]) == (answers, False, 130)
    else:
        assert bool(completed.stdout) is bool(answers), (
            "what fails is told, as far as that is known"
        )
