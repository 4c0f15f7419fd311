"""Models taken apart: names, ops, units of what is quantised, ops by themselves."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from harness.layers.network import INSIDE, Network
from tests.planted import KINDS, cnn, quantised, transformer


@pytest.mark.parametrize("kind", KINDS)
def test_each_op_by_itself_gives_what_it_gives_in_the_graph(kind: object) -> None:
    """All of them in one model, fed with what the whole graph has."""
    network = Network(kind(3))  # type: ignore[operator]
    x = np.random.default_rng(1).uniform(-1, 1, network.kinds["x"].shape).astype("f4")
    for unit, ops in ((False, network.ops()), (True, network.units())):
        names = [name for op in ops for name in op.gives]
        whole = network.with_outputs(names)
        onnx.checker.check_model(whole)
        values = dict(zip(names, ReferenceEvaluator(whole).run(None, {"x": x}), strict=True))
        values["x"] = x
        if not unit:
            for op in network.ops():
                for name in network.inputs_of(op, unit=False):
                    assert name in values
        apart = network.isolated(ops, unit=unit)
        onnx.checker.check_model(apart)
        input_names = {name for op in ops for name in network.inputs_of(op, unit=unit)}
        feeds = {
            tensor.name: values[tensor.name.removesuffix(INSIDE)] for tensor in apart.graph.input
        }
        assert {name.removesuffix(INSIDE) for name in feeds} == input_names
        got = ReferenceEvaluator(apart).run(None, feeds)
        assert [tensor.name for tensor in apart.graph.output] == names
        for name, value in zip(names, got, strict=True):
            np.testing.assert_allclose(
                value.astype("f8"), values[name].astype("f8"), rtol=1e-5, atol=1e-6
            )


def test_what_is_quantised_is_one_unit_up_to_what_quantises_it() -> None:
    network = Network(quantised(1))
    units = network.units()
    kinds = "QuantizeLinear Conv Conv Add MaxPool GlobalAveragePool DequantizeLinear"
    assert " ".join(op.type for op in units) == kinds
    inner = [network.nodes[index].op_type for index in units[1].nodes]
    assert inner == ["Conv", "Relu", "QuantizeLinear"]
    assert [op.zero for op in units[:6]] == [128] * 6
    # its weights are dequantised in it
    single = network.isolated([units[1]], unit=True)
    assert [node.op_type for node in single.graph.node].count("DequantizeLinear") == 2


def test_nodes_without_a_name_of_their_own_get_one() -> None:
    model = cnn(0)
    for index, name in enumerate(("", "same", "same", "", "Relu_2")):
        model.graph.node[index].name = name
    names = [node.name for node in Network(model).nodes]
    assert len(set(names)) == len(names)
    assert names[1] == "same"
    assert names[0] == "Conv_0"


def test_what_depends_on_no_input_is_no_op() -> None:
    assert "Reshape" in {op.type for op in Network(transformer(0)).ops()}
    # not those of weights
    assert sum(op.type == "DequantizeLinear" for op in Network(quantised(0)).ops()) == 6


def test_a_cut_takes_only_what_lies_before_it() -> None:
    network = Network(cnn(0))
    first = network.ops()[0]
    cut = network.with_outputs(first.gives)
    assert [node.op_type for node in cut.graph.node] == ["Conv"]
    assert {tensor.name for tensor in cut.graph.initializer} == {"w0", "w1"}


def test_tensors_are_called_as_files_can_be() -> None:
    model = cnn(0)
    names = "/a/b.0", "a_b_0", "A.b.0", "//", "y_"
    for index, name in enumerate(names):
        old = model.graph.node[index].output[0]
        for node in model.graph.node:
            node.input[:] = [name if input_name == old else input_name for input_name in node.input]
        model.graph.node[index].output[0] = name
    network = Network(model)
    new = [network.nodes[index].output[0] for index in range(len(names))]
    assert new == ["a_b_0", "a_b_0_2", "A_b_0_3", "tensor", "y"]
    assert [network.original_names[name_now] for name_now in new] == list(names)


def test_a_tensor_of_a_node_of_the_same_name_is_called_as_in_the_other_model() -> None:
    model = cnn(0)
    network = Network(model)
    for index, node in enumerate(model.graph.node[:-1]):
        old, node.output[0] = node.output[0], f"other{index}"
        for other_node in model.graph.node:
            other_node.input[:] = [
                node.output[0] if name == old else name for name in other_node.input
            ]
    model.graph.node[3].name = "another"
    alike = Network(model, network)
    pairs = zip(network.nodes, alike.nodes, strict=True)
    apart = [index for index, (first, other) in enumerate(pairs) if first.output != other.output]
    assert apart == [3]
    network.check_inputs(alike)
