"""Metadata of context binaries, checked against the model and its architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.containers.artefact import Tensor
from harness.core.errors import ConfigError
from harness.models.compile import compile_options, tensor_order
from harness.models.compiler import CompileError
from harness.models.metadata import (
    check_arch,
    graphs_named,
    memory_bytes,
    tensors_of,
)


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
    ("metadata", "message"),
    [
        ({}, "0 graphs"),
        ({"graphs": None}, "0 graphs"),
        ({"graphs": [GRAPH, GRAPH]}, "2 graphs"),
        ({"graphs": [GRAPH | {"inputs": [tensor("a", 1)]}]}, "its inputs are"),
        ({"graphs": [GRAPH | {"outputs": [tensor("y", 5)]}]}, "its outputs are"),
        ({"graphs": [GRAPH | {"outputs": "y"}]}, "its outputs are"),
    ],
)
def test_tensors_that_are_not_the_models(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=f"it: .*{message}"):
        tensor_order(metadata, "it", {"a": 1, "b": 2}, {"y": 4})


def test_another_architecture_than_asked_for() -> None:
    check_arch(METADATA, "it", 73)
    check_arch({}, "it", 73)
    with pytest.raises(ConfigError, match=r"HTP v71.*v73.*valid: 68, 69, 73, 75, 79, 81"):
        check_arch(METADATA, "it", 71)


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
    ("metadata", "name", "message"),
    [
        (
            TWO,
            "deocde",
            r"^/mine/model.bin: graph: has no graph 'deocde' \(valid: prefill, decode\)",
        ),
        ({"graphs": []}, None, "has no graph"),
        ({"graphs": []}, "None", "has no graph 'None'"),
    ],
)
def test_a_graph_that_nobody_can_mean(
    metadata: dict[str, Any], name: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        graphs_named(metadata, FILE, name)


def test_tensors_of_a_graph() -> None:
    assert tensors_of(GRAPH, "outputs", FILE) == [Tensor("y", 4, "None")]
    with pytest.raises(ConfigError, match="nobody knows the size of y"):
        tensors_of({"outputs": [tensor("y", 0)]}, "outputs", FILE)
