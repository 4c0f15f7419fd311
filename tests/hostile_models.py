"""ONNX models that ask for more than anybody has, or that nobody can make sense of."""

from collections.abc import Sequence

import onnx
from onnx import FunctionProto, TensorProto, helper

_OPSETS = (helper.make_opsetid("", 17), helper.make_opsetid("own", 1))


def model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int] = (1, 4),
    functions: Sequence[FunctionProto] = (),
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model from x to y."""
    ends = [[helper.make_tensor_value_info(name, kind, shape)] for name in "xy"]
    graph = helper.make_graph(nodes, "hostile", *ends)
    return helper.make_model(graph, ir_version=9, opset_imports=_OPSETS, functions=functions)


def function(name: str, calls: Sequence[str]) -> FunctionProto:
    """A function that calls others, one after the other; Relu is the operator."""
    names = ["x", *(f"t{number}" for number in range(len(calls) - 1)), "y"]
    nodes = [
        helper.make_node(
            call, [names[index]], [names[index + 1]], domain="" if call == "Relu" else "own"
        )
        for index, call in enumerate(calls)
    ]
    return helper.make_function("own", name, ["x"], ["y"], nodes, _OPSETS)


def nested(depth: int, calls: int = 2) -> onnx.ModelProto:
    """Functions that each call the next one so many times: `calls` ** (`depth` - 1) nodes."""
    functions = [function(f"f{number}", [f"f{number + 1}"] * calls) for number in range(depth - 1)]
    functions.append(function(f"f{depth - 1}", ["Relu"]))
    return model([helper.make_node("f0", ["x"], ["y"], domain="own")], functions=functions)


def bodies(depth: int) -> onnx.ModelProto:
    """Bodies of If in each other, so deep: ONNX Runtime goes twice through each."""
    then = _body("Relu", ["x"], "deepest")
    for level in range(depth):
        other = _body("Relu", ["x"], f"other{level}")
        then = _body("If", ["on"], f"then{level}", then_branch=then, else_branch=other)
    inner = model([*then.node, helper.make_node("Identity", [then.output[0].name], ["y"])])
    inner.graph.initializer.append(helper.make_tensor("on", TensorProto.BOOL, [], [True]))
    return inner


def _body(
    op: str, inputs: Sequence[str], name: str, **branches: onnx.GraphProto
) -> onnx.GraphProto:
    nodes = [helper.make_node(op, inputs, [name], **branches)]
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph(nodes, name, [], [output])


def loop(rounds: int) -> onnx.ModelProto:
    """A Loop of so many rounds, each of one op."""
    kinds = {"i": TensorProto.INT64, "on": TensorProto.BOOL, "go": TensorProto.BOOL}
    values = {
        name: helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()
    } | {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "vw"}
    nodes = [helper.make_node("Identity", ["on"], ["go"]), helper.make_node("Relu", ["v"], ["w"])]
    ends = [[values[name] for name in names] for names in (("i", "on", "v"), ("go", "w"))]
    body = helper.make_graph(nodes, "body", *ends)
    looped = model([helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body)])
    looped.graph.initializer.append(helper.make_tensor("rounds", TensorProto.INT64, [], [rounds]))
    return looped


def recursive() -> onnx.ModelProto:
    """A function that calls another one, which calls the first."""
    both = [function("f", ["g"]), function("g", ["f", "Relu"])]
    return model([helper.make_node("f", ["x"], ["y"], domain="own")], functions=both)


def relu(*shape: int, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """One op, of any shape."""
    return model([helper.make_node("Relu", ["x"], ["y"])], shape, kind=kind)


def relu_many(number: int) -> onnx.ModelProto:
    """As many nodes as this, each of some bytes."""
    return model([helper.make_node("Relu", ["x"], ["y"])] * number)


def weighty(calls: int) -> onnx.ModelProto:
    """A function with a constant of 100 kB that is called so often."""
    value = helper.make_tensor("v", TensorProto.UINT8, [100_000], bytes(100_000), raw=True)
    heavy = function("heavy", ["Relu"])
    heavy.node.append(helper.make_node("Constant", [], ["c"], value=value))
    names = ["x", *(f"t{number}" for number in range(calls - 1)), "y"]
    nodes = [
        helper.make_node("heavy", [names[number]], [names[number + 1]], domain="own")
        for number in range(calls)
    ]
    return model(nodes, functions=[heavy])


def made_within(elements: int) -> onnx.ModelProto:
    """An op that makes a tensor of any size, of which nothing goes in or comes out."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["all"]),
        helper.make_node("ReduceSum", ["all"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    built = model(nodes)
    built.graph.initializer.append(helper.make_tensor("size", TensorProto.INT64, [1], [elements]))
    return built


def twice_defined() -> onnx.ModelProto:
    """Two nodes give a tensor of the same name: each part of it by itself is a model."""
    nodes = [
        helper.make_node("Relu", ["x"], ["t"], name="a"),
        helper.make_node("Sigmoid", ["x"], ["t"], name="b"),
        helper.make_node("Relu", ["t"], ["y"], name="c"),
    ]
    return model(nodes)
