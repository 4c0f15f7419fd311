"""EPContext models that the compiler wrote: their spill-fill sizes, and refusals."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from harness.models.compile import epcontext_max_size
from harness.models.compiler import CompileError


def model(path: Path, *nodes: dict[str, int], op_type: str = "EPContext") -> Path:
    graph_nodes = [
        helper.make_node(op_type, [], [], domain="com.microsoft", **node) for node in nodes
    ]
    onnx.save(helper.make_model(helper.make_graph(graph_nodes, "g", [], [])), path)
    return path


@pytest.mark.parametrize(
    ("nodes", "size"),
    [
        ([{"main_context": 1, "max_size": 4325376}], 4325376),
        ([{"main_context": 1, "max_size": 0}], 0),
        ([{"main_context": 1}], None),
        ([{"main_context": 0, "max_size": 9}, {"main_context": 1, "max_size": 7}], 7),
        ([{"main_context": 1, "max_size": 3}, {"main_context": 1, "max_size": 8}], 8),
        ([], None),
    ],
)
def test_the_largest_size_of_what_carries_a_context(
    tmp_path: Path, nodes: list[dict[str, int]], size: int | None
) -> None:
    assert epcontext_max_size(model(tmp_path / "context.onnx", *nodes), "x") == size


def test_other_nodes_do_not_count(tmp_path: Path) -> None:
    other = model(tmp_path / "a.onnx", {"main_context": 1, "max_size": 3}, op_type="Other")
    assert epcontext_max_size(other, "x") is None


@pytest.mark.parametrize("content", [b"\xff" * 40, None])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "context.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CompileError, match=r"the job: cannot read context\.onnx"):
        epcontext_max_size(path, "the job")
