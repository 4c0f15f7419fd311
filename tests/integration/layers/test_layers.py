"""Errors that were planted into models are found: with the real compiler and simulator."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.hostile_models import nested, twice_defined
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.in_process import qnn_harness
from tests.planted import Graph, cnn, write
from tests.planted_pairs import pair

SCHEMA = json.loads((ROOT / "docs/schema/layers.schema.json").read_text())


def layers(lab: DeviceRuns, *arguments: object) -> tuple[int, dict[str, Any]]:
    completed = lab.qnn_harness("model", "layers", *map(str, arguments), "--json", timeout_s=550)
    assert completed.returncode in (0, 1), completed.stderr
    document = json.loads(completed.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return completed.returncode, document


@pytest.mark.slow
def test_an_op_that_was_changed_is_named(lab: DeviceRuns) -> None:
    tested, reference, name = write(lab.folder, 0)
    code, document = layers(lab, tested, "--reference", reference)
    assert code == 1
    assert (document["first"]["op"], document["first"]["because"]) == (name, "the model")
    assert document["refused"] is None
    curve = {point["op"]: point for point in document["curve"]}
    assert all(point["error"] is not None and point["made"] is not None for point in curve.values())
    exported = Path(lab.folder, document["first"]["exported"])
    alone = onnx.load(exported / "op.onnx")
    feeds = {
        tensor.name: np.load(exported / f"inputs/{tensor.name}.npy") for tensor in alone.graph.input
    }
    output = ReferenceEvaluator(alone).run(None, feeds)[0]
    (expected,) = (exported / "expected").iterdir()
    assert not np.allclose(output, np.load(expected), rtol=1e-6, atol=0)
    assert "<polyline" in (exported / "curve.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("error", ["outputs of Split swapped", "scale of DequantizeLinear"])
def test_an_error_as_people_make_it_is_named(lab: DeviceRuns, error: str) -> None:
    tested, reference, name = pair(error)
    onnx.save(tested, lab.folder / "tested.onnx")
    onnx.save(reference, lab.folder / "reference.onnx")
    code, document = layers(lab, "tested.onnx", "--reference", "reference.onnx")
    assert (code, document["first"]["op"], document["first"]["because"]) == (1, name, "the model")


@pytest.mark.slow
def test_a_model_that_is_well_has_no_first(lab: DeviceRuns) -> None:
    onnx.save(cnn(5), lab.folder / "well.onnx")
    code, document = layers(lab, "well.onnx")
    assert (code, document["first"]) == (0, None)
    assert all(point["made"] < 0.01 for point in document["curve"])


@pytest.mark.slow
def test_ops_that_are_refused_are_named_at_once(lab: DeviceRuns) -> None:
    graph = Graph(0, (1, 4, 8, 8))
    x = graph.add("Relu", "x")
    for _ in range(2):
        x = graph.add("Shrink", graph.add("Relu", x), lambd=0.1)
    onnx.save(graph.model(graph.add("Relu", x)), lab.folder / "refused.onnx")
    code, document = layers(lab, "refused.onnx")
    assert (code, document["first"]) == (1, None)
    reason = "Operators of type `Shrink` are not supported by QNN EP."
    assert f"op /shrink_2 (Shrink) is not supported here: {reason}" in document["refused"]
    skipped = {point["op"]: point["skipped"] for point in document["curve"]}
    assert skipped == {name: reason if "shrink" in name else None for name in skipped}
    assert [point["op"] for point in document["curve"] if point["made"] is None] == [
        "/shrink_2",
        "/shrink_4",
    ]


def test_a_context_says_that_its_model_is_needed(lab: DeviceRuns) -> None:
    (context,) = (ROOT / "tests/field").glob("add_add_1_quant*.bin")
    completed = qnn_harness("model", "layers", context, code=2)
    assert ".onnx" in completed.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["none.onnx"], "none.onnx"),
        (["a.onnx", "--against", "2.51.0", "--qnn", "2.51.0"], "--against"),
        (["a.onnx", "--against", "2.47.0", "--reference", "other.onnx"], "--against"),
        (["a.onnx", "--inputs", "nowhere"], "nowhere"),
        (["a.onnx", "--reference", "other.onnx"], "inputs of the models"),
        (["open.onnx"], "has the shape [n, "),
        (["endless.onnx"], "549,755,813,888 nodes"),
        (["twice.onnx"], "Duplicate definition of name (t)"),
    ],
)
def test_wrong_input_is_told(tmp_path: Path, arguments: list[str], problem: str) -> None:
    model = cnn(0)
    onnx.save(model, tmp_path / "a.onnx")
    onnx.save(nested(40), tmp_path / "endless.onnx")
    onnx.save(twice_defined(), tmp_path / "twice.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, tmp_path / "open.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, tmp_path / "other.onnx")
    files = [
        tmp_path / argument if argument.endswith(".onnx") else argument for argument in arguments
    ]
    completed = qnn_harness("model", "layers", *files, "--reports", tmp_path / "reports", code=2)
    assert problem in completed.stderr
    assert not (tmp_path / "reports").exists()


@pytest.mark.slow
def test_a_device_that_is_gone_is_the_labs_failure(tmp_path: Path) -> None:
    onnx.save(cnn(0), tmp_path / "a.onnx")
    lab = tmp_path / "lab.yaml"
    lab.write_text(
        "schema: 1\ndevices:\n"
        "  - {name: gone, serial: nobody-there, soc: QCS8550, target: linux-arm64}\n"
    )
    reports = tmp_path / "reports"
    completed = qnn_harness(
        "model", "layers", tmp_path / "a.onnx", "--lab", lab, "--reports", reports, code=3
    )
    assert "the run on gone" in completed.stderr
    assert not reports.exists()
