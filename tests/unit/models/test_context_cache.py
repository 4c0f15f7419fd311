"""Metadata of context binaries beside the model and its architecture, and EPContext models."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from harness.containers.artefact import Tensor
from harness.core.errors import ConfigError
from harness.models.compiler import CompileError
from harness.models.context_cache import compile_options, epcontext_max_size, tensor_order
from harness.models.context_metadata import check_arch, graphs_named, memory_bytes, tensors_of


def tensor(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "bytes": size}


GRAPH = {
    "inputs": [tensor("b", 2), tensor("a", 1)],
    "outputs": [tensor("y", 4)],
    "spill_fill_bytes": 100,
    "io_bytes": 20,
    "const_bytes": 3,
}
METADATA = {"dsp_arch": 73, "size": 5000, "graphs": [GRAPH]}


def test_tensors_come_in_the_binarys_order() -> None:
    assert tensor_order(METADATA, "it", {"a": 1, "b": 2}, {"y": 4}) == (["b", "a"], ["y"])


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"graphs": None},
        {"graphs": [GRAPH, GRAPH]},
        {"graphs": [GRAPH | {"inputs": [tensor("a", 1)]}]},
        {"graphs": [GRAPH | {"outputs": [tensor("y", 5)]}]},
        {"graphs": [GRAPH | {"outputs": "y"}]},
    ],
)
def test_tensors_that_are_not_the_models(metadata: dict[str, Any]) -> None:
    with pytest.raises(CompileError, match="it: "):
        tensor_order(metadata, "it", {"a": 1, "b": 2}, {"y": 4})


def test_another_architecture_than_asked_for() -> None:
    check_arch(METADATA, "it", 73)
    check_arch({}, "it", 73)
    with pytest.raises(ConfigError) as error:
        check_arch(METADATA, "it", 71)
    assert error.value.choices == ["68", "69", "73", "75", "79", "81"]


@pytest.mark.parametrize(
    ("metadata", "size"),
    [
        (METADATA, 123),
        ({"graphs": [GRAPH, GRAPH | {"spill_fill_bytes": 300}]}, 346),
        ({"size": 5000, "graphs": [{"inputs": [tensor("x", 10)], "outputs": []}]}, 5010),
        ({}, 0),
        ({"size": "large", "graphs": [7, {"io_bytes": None}]}, 0),
    ],
)
def test_memory(metadata: dict[str, Any], size: int) -> None:
    assert memory_bytes(metadata) == size


@pytest.mark.parametrize(
    ("arch", "soc_model"), [(68, "30"), (73, "43"), (75, "57"), (79, "69"), (81, "87"), (999, "43")]
)
def test_options(arch: int, soc_model: str) -> None:
    options = compile_options(arch)
    assert options["htp_arch"] == str(arch)
    assert options["soc_model"] == soc_model


FILE = Path("/mine/model.bin")
DECODE = GRAPH | {"name": "decode"}
TWO = {"graphs": [GRAPH | {"name": "prefill"}, DECODE]}


def test_a_graph_by_its_name_or_all_of_them() -> None:
    assert graphs_named(METADATA, FILE, None) == [(0, GRAPH)]
    assert graphs_named(TWO, FILE, None) == [(0, GRAPH | {"name": "prefill"}), (1, DECODE)]
    assert graphs_named(TWO, FILE, "decode") == [(1, DECODE)]


@pytest.mark.parametrize(
    ("metadata", "name", "choices"),
    [
        (TWO, "deocde", ["prefill", "decode"]),
        ({"graphs": []}, None, []),
        ({"graphs": []}, "None", []),
    ],
)
def test_a_graph_that_nobody_can_mean(
    metadata: dict[str, Any], name: str | None, choices: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        graphs_named(metadata, FILE, name)
    assert (error.value.file, error.value.choices or []) == (FILE, choices)


def test_tensors_of_a_graph() -> None:
    assert tensors_of(GRAPH, "outputs", FILE) == [Tensor("y", 4, "None")]
    with pytest.raises(ConfigError):
        tensors_of({"outputs": [tensor("y", 0)]}, "outputs", FILE)


def model(path: Path, *nodes: dict[str, int], op_type: str = "EPContext") -> Path:
    graph_nodes = [
        helper.make_node(op_type, [], [], domain="com.microsoft", **node) for node in nodes
    ]
    onnx.save(helper.make_model(helper.make_graph(graph_nodes, "g", [], [])), path)
    return path


@pytest.mark.parametrize(
    ("nodes", "size"),
    [
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
    assert epcontext_max_size(model(tmp_path / "a.onnx", *nodes, op_type="Other"), "x") is None


@pytest.mark.parametrize("content", [b"\xff" * 40, None])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "context.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CompileError, match=r"context\.onnx"):
        epcontext_max_size(path, "the job")
