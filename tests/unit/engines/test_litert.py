"""Texts about a model that LiteRT compiled, and the files that it takes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.containers.tflite import TfliteGraph
from harness.core.engine import ENGINES
from harness.core.errors import ConfigError
from harness.engines.litert import CompiledModel, _largest, numbers_of, open_model
from harness.models.artefact_sources import ModelOptions
from harness.models.context_file import ContextFile
from harness.models.litert_compiler import RefusedByCpu
from tests.snapshots import Snapshot
from tests.unit.containers.made import tflite
from tests.unit.containers.test_tflite import COMPILED, MODEL

TAKEN = ["p", "p", None, "q"]
PARTS = tuple(ContextFile(source, name=f"m#{source}", tolerance=0.5) for source in "pq")


def test_each_node_has_its_place(snapshot: Snapshot) -> None:
    compiled = CompiledModel(MODEL, TAKEN, PARTS, "SM8550", None)
    figures = compiled.figures()
    assert figures["tolerance"] == {"m#p": 0.5, "m#q": 0.5}
    assert figures["reference"] == "LiteRT's CPU"
    rows: Any = compiled.places()["nodes"]
    assert "".join(row["node"] for row in rows) == "wabc"
    assert [row["on"] for row in rows] == ["NPU", "NPU", "CPU", "NPU"]
    assert str(compiled) == snapshot
    # all on the NPU, and with what the CPU does not run
    assert str(CompiledModel(MODEL, ["p"] * 4, PARTS[:1], "SM8550", None)) == snapshot
    refused = CompiledModel(MODEL, TAKEN, PARTS, "SM8550", "Encountered unresolved custom op: MY.")
    assert refused.figures()["reference"] == "Encountered unresolved custom op: MY."
    assert str(refused) == snapshot


def test_tensors_are_found_by_their_names(snapshot: Snapshot) -> None:
    assert numbers_of(MODEL, {"x", "b"}) == {"x": 0, "b": 3}
    with snapshot.raises(RefusedByCpu):
        numbers_of(MODEL, {"x", "z"})
    twice = TfliteGraph((*MODEL.tensors, MODEL.tensors[0]), (0,), (1,), MODEL.nodes)
    with snapshot.raises(RefusedByCpu):
        numbers_of(twice, {"x"})


def test_the_largest_of_all_values(tmp_path: Path) -> None:
    largest = {}
    for name, values in {"x": [1.0, -3.0], "w": [np.nan, np.inf]}.items():
        largest[name] = tmp_path / name
        np.array(values, np.float32).tofile(largest[name])
    assert _largest(MODEL.tensors[:2], largest) == 3.0
    assert _largest((), largest) == 0.0


@pytest.mark.parametrize("name", [COMPILED.name, "executorch-3-contexts.pte"])
def test_a_file_that_is_not_compiled(name: str, snapshot: Snapshot) -> None:
    snapshot.hide(COMPILED.parent, "FIELD")
    with snapshot.raises(ConfigError):
        open_model(COMPILED.parent / name)


def test_what_cannot_be_given(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "m.tflite").write_bytes(tflite([("Other", None)]))
    for options in (ModelOptions(expected=Path("out")), ModelOptions(graph="main")):
        with snapshot.raises(ConfigError):
            ENGINES["litert"].cases(tmp_path / "m.tflite", options)
    (whole,) = ENGINES["litert"].cases(tmp_path / "m.tflite", ModelOptions(tolerance=0.1))
    assert (whole.name, whole.options.tolerance) == ("m.tflite", 0.1)
    assert (tuple(whole), whole.files) == ((), ())
