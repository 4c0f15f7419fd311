"""Texts about a model that LiteRT compiled, and the files that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.containers.tflite import TfliteGraph
from harness.core.engines import ENGINES
from harness.core.errors import ConfigError
from harness.engines.litert import CompiledModel, _largest, numbers_of, open_model
from harness.models.artefact_sources import ModelOptions
from harness.models.context_file import ContextFile
from harness.models.litert import RefusedByCpu
from tests.unit.containers.made import tflite
from tests.unit.containers.test_tflite import COMPILED, MODEL

TAKEN = ["p", "p", None, "q"]
PARTS = tuple(ContextFile(source, name=f"m#{source}", tolerance=0.5) for source in "pq")


def test_each_node_has_its_place() -> None:
    compiled = CompiledModel(MODEL, TAKEN, PARTS, "SM8550", None)
    figures = compiled.figures()
    assert figures["tolerance"] == {"m#p": 0.5, "m#q": 0.5}
    assert figures["reference"] == "LiteRT's CPU"
    rows: Any = compiled.places()["nodes"]
    shown_rows = [(row["node"], row["op_type"], row["on"]) for row in rows]
    assert shown_rows == [
        ("w", "DEQUANTIZE", "NPU"),
        ("a", "CONV", "NPU"),
        ("b", "MY", "CPU"),
        ("c", "RELU", "NPU"),
    ]
    first, between = str(compiled).splitlines()
    assert first == "of 4 nodes 3 on the NPU, in 2 partitions, and 1 on the CPU"
    assert "each partition ran by itself, on what LiteRT's CPU computed before it" in between


def test_a_model_that_is_all_on_the_npu_is_said_so_in_a_line() -> None:
    compiled = CompiledModel(MODEL, ["p"] * 4, PARTS[:1], "SM8550", None)
    assert str(compiled) == "of 4 nodes 4 on the NPU, in 1 partition, and 0 on the CPU"


def test_what_the_cpu_does_not_run_is_compared_with_nothing() -> None:
    compiled = CompiledModel(MODEL, TAKEN, PARTS, "SM8550", "Encountered unresolved custom op: MY.")
    assert compiled.figures()["reference"] == "Encountered unresolved custom op: MY."
    note = str(compiled).splitlines()[1]
    assert "nothing is compared; Encountered unresolved custom op: MY." in note


def test_tensors_are_found_by_their_names() -> None:
    assert numbers_of(MODEL, {"x", "b"}) == {"x": 0, "b": 3}
    with pytest.raises(RefusedByCpu, match="it has no tensor 'z'"):
        numbers_of(MODEL, {"x", "z"})
    twice = TfliteGraph((*MODEL.tensors, MODEL.tensors[0]), (0,), (1,), MODEL.nodes)
    with pytest.raises(RefusedByCpu, match="two tensors have one name"):
        numbers_of(twice, {"x"})


def test_the_largest_of_all_values(tmp_path: Path) -> None:
    largest = {}
    for name, values in {"x": [1.0, -3.0], "w": [np.nan, np.inf]}.items():
        largest[name] = tmp_path / name
        np.array(values, np.float32).tofile(largest[name])
    assert _largest(MODEL.tensors[:2], largest) == 3.0
    assert _largest((), largest) == 0.0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tflite", COMPILED.read_bytes(), "is compiled for QNN already: run it without --engine"),
        ("a.pte", (COMPILED.parent / "executorch-3-contexts.pte").read_bytes(), "this is: pte"),
    ],
)
def test_a_file_that_is_not_compiled(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        open_model(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ModelOptions(expected=Path("out")),
            "LiteRT computes what is expected on this computer's CPU",
        ),
        (ModelOptions(graph="main"), "LiteRT executes a whole model: there is no graph to choose"),
    ],
)
def test_what_cannot_be_given(tmp_path: Path, options: ModelOptions, message: str) -> None:
    (tmp_path / "m.tflite").write_bytes(tflite([("Other", None)]))
    with pytest.raises(ConfigError, match=message):
        ENGINES["litert"].cases(tmp_path / "m.tflite", options)
    (whole,) = ENGINES["litert"].cases(tmp_path / "m.tflite", ModelOptions(tolerance=0.1))
    assert (whole.name, whole.options.tolerance, tuple(whole), whole.files) == (
        "m.tflite",
        0.1,
        (),
        (),
    )
