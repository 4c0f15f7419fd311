"""ONNX models of users: what is made of them before they are compiled."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from harness.containers.artefact import Tensor
from harness.core.errors import ConfigError
from harness.models.builtin_models import Model, OnnxFiles
from harness.models.onnx_model import OnnxModel, OnnxSurface
from tests.snapshots import Snapshot


def saved(
    path: Path, rows: int | str = 3, *, is_external: bool = False, weight: float = 0.5
) -> Path:
    """A model that looks rows up: of numbers, of whole numbers, and with weights."""
    weights = numpy_helper.from_array(np.full((4, 300), weight, np.float32), "w")
    inputs = [
        helper.make_tensor_value_info("at", TensorProto.INT64, [rows]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT16, [2, 2]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 300]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("z", TensorProto.FLOAT16, None),
    ]
    nodes = [helper.make_node("Gather", ["w", "at"], ["y"]), helper.make_node("Abs", ["x"], ["z"])]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [weights]))
    onnx.save(model, path, save_as_external_data=is_external, location=f"{path.name}.data")
    return path


def test_inputs_are_made_up_and_the_same_every_time(tmp_path: Path) -> None:
    model = OnnxModel.of(saved(tmp_path / "my model.onnx"))
    first, second = model.inputs(), model.inputs()
    assert [(name, array.dtype.str, array.shape) for name, array in first.items()] == [
        ("at", "<i8", (3,)),
        ("x", "<f2", (2, 2)),
    ]
    assert set(first["at"]) <= {0, 1}
    assert len(np.unique(first["x"])) > 1
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert model.outputs() == ("y", "z")
    assert (str(model), model.compiled, isinstance(model, Model)) == ("my_model.onnx", True, True)


def test_a_model_has_one_file_whatever_its_inputs(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx")
    (tmp_path / "in").mkdir()
    np.array([0, 1, 2], np.int64).tofile(tmp_path / "in/at.raw")
    np.zeros((2, 2), np.float16).tofile(tmp_path / "in/x.raw")
    first, other = OnnxModel.of(path, 0.1, inputs=tmp_path / "in"), OnnxModel.of(path)
    assert first != other
    assert first.without_inputs == other.without_inputs == other
    files = OnnxFiles(tmp_path / "cache")
    assert files.path(first) == files.path(other)
    assert files.path(first).name.startswith("m.onnx-")
    changed = OnnxModel.of(saved(path, weight=1.0))
    assert changed.without_inputs != first.without_inputs
    assert files.path(changed) != files.path(first)


def test_outputs_are_compared_where_a_tolerance_is_given(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx")
    plain, tolerant = OnnxModel.of(path), OnnxModel.of(path, 0.1)
    assert (plain.compared, plain.tolerance) == (False, 0.0)
    assert (tolerant.compared, tolerant.tolerance) == (True, 0.1)
    assert plain != tolerant
    assert plain == OnnxModel.of(path)
    assert Model("tiny").compared
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError):
            OnnxModel.of(path, wrong)


def test_weights_beside_the_model_are_part_of_it(tmp_path: Path) -> None:
    inside = OnnxModel.of(saved(tmp_path / "m.onnx"))
    path = saved(tmp_path / "n.onnx", is_external=True)
    assert (tmp_path / "n.onnx.data").stat().st_size == 4800
    model = OnnxModel.of(path)
    assert len(model.serialized()) >= len(inside.serialized()) > 4800
    saved(path, is_external=True, weight=0.25)
    with pytest.raises(ConfigError):
        model.serialized()
    assert OnnxModel.of(path).digest != model.digest
    (tmp_path / "n.onnx.data").unlink()
    with pytest.raises(ConfigError, match=r"n\.onnx\.data"):
        OnnxModel.of(path)


def test_what_cannot_be_compiled(tmp_path: Path, snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        OnnxModel.of(saved(tmp_path / "d.onnx", "batch"))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigError, match="text: "):
        OnnxModel.of(tmp_path / "text")


def test_what_is_seen_of_a_model_from_outside(tmp_path: Path) -> None:
    surface = OnnxSurface.of(saved(tmp_path / "m.onnx", is_external=True))
    assert surface.inputs == (Tensor("at", 24, "int64", (3,)), Tensor("x", 8, "float16", (2, 2)))
    y, z = surface.require_outputs(tmp_path / "m.onnx")
    assert (str(y), str(z)) == (
        "y (float32 [3, 300], 3600 bytes)",
        "z (float16 [2, 2], 8 bytes)",
    )
    assert surface.weight_files == ("m.onnx.data",)
    with pytest.raises(ConfigError):
        OnnxSurface.of(saved(tmp_path / "any.onnx", "rows"))
    model = onnx.load(saved(tmp_path / "type.onnx"))
    model.graph.input[1].type.tensor_type.elem_type = 99
    onnx.save(model, tmp_path / "type.onnx")
    with pytest.raises(ConfigError, match="99"):
        OnnxSurface.of(tmp_path / "type.onnx")


@pytest.mark.parametrize("inner", [False, True])
def test_weights_are_read_from_the_folder_of_the_model_alone(tmp_path: Path, inner: bool) -> None:
    """Also those of a graph within the graph, which no list of initializers names."""
    folder = tmp_path / "model"
    folder.mkdir()
    path = saved(folder / "m.onnx", is_external=True)
    (tmp_path / "secret").write_bytes((folder / "m.onnx.data").read_bytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "short").write_bytes(b"1")

    def error_for(place: str) -> str:
        model = onnx.load(path, load_external_data=False)
        tensor = model.graph.initializer[0]
        if inner:
            graph = helper.make_graph([], "held", [], [], [tensor])
            del model.graph.initializer[:]
            model.graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=graph))
            tensor = model.graph.node[-1].attribute[0].g.initializer[0]
        tensor.external_data[0].value = place
        (folder / "changed.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(ConfigError) as error:
            OnnxModel.of(folder / "changed.onnx")
        return str(error.value)

    for place in (str(tmp_path / "secret"), "link", "short", "nowhere", "../secret"):
        assert place in error_for(place)
    with pytest.raises(ConfigError):
        OnnxSurface.of(folder / "changed.onnx")
