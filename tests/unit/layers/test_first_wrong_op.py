"""The first wrong op of models that ONNX's own evaluator calculates: no compiler, no device."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from harness.layers.divergence import Divergence, lines
from harness.layers.first_wrong_op import FirstWrong
from harness.layers.network import Calculated, Calculation, Cpu, NotCalculated, Qnn, Stored
from tests.planted_pairs import PAIRS, Builder, pair

Spoil = Callable[[onnx.ModelProto], None]


class _Evaluated:
    """A side that calculates as ONNX says; `spoil` changes what it is asked."""

    name = "the evaluator"

    def __init__(self, folder: Path, spoil: Spoil | None = None) -> None:
        self._folder, self._spoil, self._count = folder, spoil, 0

    def calculate(self, questions: Sequence[Calculation]) -> list[Calculated]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: Calculation) -> Calculated:
        model = onnx.ModelProto()
        model.CopyFrom(question.model)
        if self._spoil is not None:
            self._spoil(model)
        if not question.gives:  # it is only loaded
            return {}
        feeds = {name: np.array(tensor.array()) for name, tensor in question.feeds.items()}
        try:
            outputs: Any = ReferenceEvaluator(model).run([*question.gives], feeds)
        except Exception as error:
            return NotCalculated(str(error))
        stored = {}
        for (name, kind), value in zip(question.gives.items(), outputs, strict=True):
            if value.shape != kind.shape:
                return NotCalculated(f"{name} has shape {value.shape}")
            self._count += 1
            path = self._folder / f"{id(self)}-{self._count}.raw"
            value.astype(kind.dtype).tofile(path)
            stored[name] = Stored(path, kind)
        return stored


def diverged(
    folder: Path,
    tested: onnx.ModelProto,
    reference: onnx.ModelProto | None = None,
    spoil: Spoil | None = None,
) -> Divergence:
    paths = folder / "tested.onnx", folder / "reference.onnx"
    onnx.save(tested, paths[0])
    if reference is not None:
        onnx.save(reference, paths[1])
    search = FirstWrong(
        paths[0],
        cast("Qnn", _Evaluated(folder, spoil)),
        cast("Cpu", _Evaluated(folder)),
        folder,
        reference=paths[1] if reference is not None else None,
    )
    return search.run(folder / "kept")


@pytest.mark.parametrize("error", PAIRS)
def test_the_op_that_has_the_error_is_named(error: str, tmp_path: Path) -> None:
    tested, reference, node = pair(error)
    divergence = diverged(tmp_path, tested, reference)
    first = divergence.first
    assert (first.op, first.because, divergence.exit_code) == (node, "the model", 1)
    assert node in divergence.curve[divergence.place].nodes
    assert sum(line.endswith("<- first") for line in lines(divergence)) <= 1
    if error == "ceil_mode":  # no figure stands for another shape
        assert (first.error, first.changed) == (None, None)
        assert "[1, 4, 5, 5]" in (first.skipped or "")


@pytest.mark.parametrize("error", ["two errors", "scale of weights"])
def test_a_model_is_no_other_than_itself(error: str, tmp_path: Path) -> None:
    _, reference, _ = pair(error)
    divergence = diverged(tmp_path, reference, reference)
    assert (divergence.first, divergence.exit_code) == (None, 0)
    assert all(point.error == point.made == point.changed == 0 for point in divergence.curve)


def _chain() -> onnx.ModelProto:
    b = Builder()
    x = b.add("Relu", "a", "x")
    x = b.add("LeakyRelu", "b", b.add("Neg", "turn", x), alpha=0.5)
    x = b.add("Elu", "c", x, alpha=0.5)
    return b.made((1, 16), b.add("LeakyRelu", "d", x, alpha=0.5))


def _in_its_graph(model: onnx.ModelProto) -> None:
    """`c` is calculated in another way where `b` and what turns it stand before it."""
    if {"turn", "b", "c"} <= {node.name for node in model.graph.node} and not any(
        tensor.name.endswith("__in") for tensor in model.graph.input
    ):
        (node,) = (node for node in model.graph.node if node.name == "c")
        node.attribute[0].CopyFrom(helper.make_attribute("alpha", 0.1))


def test_an_op_that_is_wrong_in_the_graph_only_is_exported_with_what_shows_it(
    tmp_path: Path,
) -> None:
    divergence = diverged(tmp_path, _chain(), spoil=_in_its_graph)
    first = divergence.first
    assert (first.op, first.because, first.made, first.together) == ("c", "the graph", 0.0, 3)
    assert first.error == first.in_graph
    assert first.error > 0.1
    exported = onnx.load(tmp_path / "kept/op.onnx")
    assert [node.name for node in exported.graph.node] == ["turn", "b", "c"]
    (inputs,) = (np.load(path) for path in (tmp_path / "kept/inputs").iterdir())
    feeds = {exported.graph.input[0].name: inputs}
    right: Any = ReferenceEvaluator(exported).run(None, feeds)[0]
    (expected,) = (np.load(path) for path in (tmp_path / "kept/expected").iterdir())
    assert np.array_equal(right, expected)
    _in_its_graph(exported)
    wrong: Any = ReferenceEvaluator(exported).run(None, feeds)[0]
    assert not np.allclose(wrong, expected)


def test_what_no_part_of_the_graph_shows_is_not_exported(tmp_path: Path) -> None:
    def spoil(model: onnx.ModelProto) -> None:
        if len(model.graph.output) > 1 and "d" in {node.name for node in model.graph.node}:
            _in_its_graph(model)

    divergence = diverged(tmp_path, _chain(), spoil=spoil)
    first = divergence.first
    assert (first.op, first.because, first.together) == ("c", "the graph", 0)
    assert divergence.first.exported is None
    assert not (tmp_path / "kept").exists()


def test_an_op_that_is_wrong_alone_is_exported_alone(tmp_path: Path) -> None:
    def spoil(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            if node.name == "c":
                node.attribute[0].CopyFrom(helper.make_attribute("alpha", 0.1))

    divergence = diverged(tmp_path, _chain(), spoil=spoil)
    first = divergence.first
    assert (first.op, first.because, first.together) == ("c", "arithmetic", 1)
    assert first.error == first.made
    exported = onnx.load(tmp_path / "kept/op.onnx")
    assert [node.name for node in exported.graph.node] == ["c"]


def test_a_model_that_is_refused_is_not_well(tmp_path: Path) -> None:
    def spoil(model: onnx.ModelProto) -> None:
        if len(model.graph.node) == 5:
            model.graph.node[0].op_type = "NoSuchOp"

    divergence = diverged(tmp_path, _chain(), spoil=spoil)
    assert (divergence.first, divergence.exit_code) == (None, 1)
    assert divergence.refused
