"""`qnn-harness contexts`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.bisect.loop import RunEnd
from harness.bisect.match import Judged, Question
from harness.cli.contexts import contexts, lines
from harness.cli.contexts_minimize import _Progress
from harness.containers.artefact import ArtefactError
from harness.containers.open import open_artefact
from harness.models.inspection import ContextReport, Inspection, model_report
from harness.models.models import Model
from harness.reduce.subject import Way
from tests.unit.containers.made import FIELD

PTE = FIELD / "executorch-3-contexts.pte"


def test_extract_says_what_was_copied(tmp_path: Path) -> None:
    completed = CliRunner().invoke(
        contexts, ["extract", str(PTE), "--output", str(tmp_path / "out")]
    )
    assert completed.exit_code == 0
    *lines, last = completed.output.splitlines()
    assert [line.split() for line in lines] == [
        [f"{PTE.name}.{n}.bin", str(size), "bytes", "context", PTE.name, f"forward/{n}"]
        for n, size in enumerate((54016, 49960, 49960))
    ]
    assert last == f"{tmp_path}/out/manifest.json lists them"
    assert len(open_artefact(tmp_path / "out/manifest.json").pieces) == 3


def test_extract_lists_each_piece(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    words = ["extract", *map(str, sorted(FIELD.glob("*.onnx"))), "--output", out]
    completed = CliRunner().invoke(contexts, words)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert len(completed.output.splitlines()) == len(manifest["pieces"]) + 1 == 5


def test_of_many_contexts_the_first_are_shown() -> None:
    one = ContextReport("m.pte", "executorch", "0", "context", 0, 1000, "ab", {}, build_id="v2")
    other = replace(one, origin="1", size=3000, memory_bytes=5000)
    report = Inspection(1, "2.51.0", (one, other) * 5, ())
    short, long = [*lines(report)], [*lines(report, whole=True)]
    assert short[-1] == "10 contexts, read by QNN 2.51.0; --long shows all"
    assert (len(long), len(short)) == (31, 25)
    assert short[:-1] == long[:24]
    assert (
        [*lines(replace(report, contexts=(one,)))]
        == [
            long[0].replace("#0", ""),  # the only one is called like its file
            *long[1:3],
            "1 context, read by QNN 2.51.0",
        ]
    )


def test_a_model_for_the_device_is_no_context() -> None:
    dlc = ContextReport("a.dlc", "dlc", "", "dlc", 0, 1000, "ab", {})
    report = Inspection(1, "2.51.0", (dlc,), ())
    a_model = "a DLC: a model that is compiled on the device"
    assert [*lines(report)] == ["a.dlc: 1.000 kB, sha256 ab", f"    {a_model}"]


def test_a_model_is_told_as_one(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(Model("tiny").serialized())
    texts = [*lines(Inspection(1, "2.51.0", (), (), (model_report(file),)))]
    assert texts == [
        f"{file}: an ONNX model, which `run` and `contexts compile` compile",
        "    1 node: 1 MatMul",
        "    in  x: float32 [1, 16]",
        "    out y: float32 [1, 16]",
    ]


def test_an_output_that_other_nodes_read_too_is_one(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xyz"]
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    file = tmp_path / "m.onnx"
    file.write_bytes(helper.make_model(graph).SerializeToString())
    assert model_report(file).outputs == ("y: float32 [2]", "z: float32 [2]")


def test_a_damaged_file_is_told_with_its_place(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pte"
    cut.write_bytes(PTE.read_bytes()[:5000])
    with pytest.raises(ArtefactError, match=r"cut.pte: at byte 2432: .* within the file of 5000"):
        CliRunner().invoke(
            contexts, ["extract", str(cut), "--output", str(tmp_path / "o")], catch_exceptions=False
        )


def test_a_way_that_fails_otherwise_is_not_said_to_pass(capsys: pytest.CaptureFixture[str]) -> None:
    for answer, why in (("good", "passed"), ("untestable", "failed: x 1"), ("bad", "failed: y 2")):
        question = Question(at=Way((0,), "resident").point, number=1)
        judged = Judged(answer, why)  # type: ignore[arg-type]
        _Progress().on_answer(question, judged, RunEnd(1, None, None, "", 1.0))
    names = [line.split()[0] for line in capsys.readouterr().err.splitlines()]
    assert names == ["passes", "other", "fails"]
