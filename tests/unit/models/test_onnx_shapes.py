"""ONNX models are read by a process that is bounded, and none of them costs more."""

import re
from pathlib import Path

import onnx
import pytest

from harness.core.errors import ConfigError
from harness.layers.network import Network
from harness.models import onnx_model
from harness.models.onnx_model import OnnxModel, OnnxNodes, inlined, shaped
from tests.hostile_models import bodies, nested, recursive, relu, relu_many, weighty
from tests.planted import Graph
from tests.snapshots import Snapshot


def _saved(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize(
    "hostile",
    [
        nested(40),
        bodies(30),
        relu_many(300_000),
        weighty(400),
        recursive(),
        relu(*[1] * 70),
        relu(1, 3_000_000_000),
        relu(2**62, 2**62),
    ],
    ids=["nested", "bodies", "many", "weighty", "recursive", "dimensions", "bytes", "overflow"],
)
def test_a_model_that_asks_for_too_much_is_refused(
    hostile: onnx.ModelProto, tmp_path: Path, snapshot: Snapshot
) -> None:
    with pytest.raises(ConfigError) as error:
        OnnxModel.of(_saved(hostile, tmp_path))
    # the bytes of nodes are those of a version of onnx
    assert re.sub(r"\d\d,\d{3},\d{3}( bytes of nodes| are)", r"N\1", str(error.value)) == snapshot


@pytest.mark.slow
def test_inference_ends_where_its_time_or_its_memory_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_model, "MOST_NODES", 1 << 62)
    monkeypatch.setattr(onnx_model, "MOST_GROWTH", 1 << 62)
    with monkeypatch.context() as patch:
        patch.setattr(onnx_model, "MOST_CPU_S", 2)
        with pytest.raises(ConfigError, match=r"152 .*2 s"):
            shaped(_saved(nested(40), tmp_path))
    monkeypatch.setattr(onnx_model, "_MOST_BYTES", 1 << 30)
    with pytest.raises(ConfigError, match=r"1024 MiB|MemoryError|bad_alloc"):
        inlined(nested(40))


def test_functions_are_put_in_place_of_their_calls() -> None:
    assert [node.op_type for node in inlined(nested(3)).graph.node] == ["Relu"] * 4
    assert [node.op_type for node in Network(nested(3)).nodes] == ["Relu"] * 4


def test_a_model_is_read_again_where_it_was_changed(tmp_path: Path) -> None:
    path = _saved(relu(1, 4), tmp_path)
    assert shaped(path) is shaped(path)
    _saved(nested(2), tmp_path)
    assert [node.op_type for node in shaped(path).graph.node] == ["f0"]


def test_large_tensors_are_left_out_and_all_shapes_are_told(tmp_path: Path) -> None:
    graph = Graph(0, (1, 64))
    x = graph.add("MatMul", "x", graph.weight(64, 64))
    model = graph.model(graph.add("Relu", graph.add("Identity", x)))
    del model.graph.value_info[:]
    path = _saved(model, tmp_path)
    assert path.stat().st_size > 64 * 64 * 4 > shaped(path).ByteSize()
    kinds = OnnxNodes.of(path).kinds
    assert set(kinds.values()) == {"float32 [1, 64]"}
    assert len(kinds) == 4
    assert OnnxModel.of(path).build() == model
