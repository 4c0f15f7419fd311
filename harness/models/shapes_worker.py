"""The program that infers the shapes of an ONNX model: run by onnx_model.py, never imported.

    python -P shapes_worker.py REQUEST.json

It limits its own memory and time, so that no model can exhaust those of the computer. Its only
imports are those of onnx.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_DATA = (
    "raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data",
    "string_data",
)  # fmt: skip
_KEPT_BYTES = 4096
_MOST_OVERHEAD = 128 << 20
_VISITS = 16
"""ONNX Runtime visits a body twice, and so one that is 16 deep 2 ** 16 times."""


def main(request_path: str) -> None:
    """Infer the shapes of a request's model; write the model, or the reason for a refusal."""
    request = json.loads(Path(request_path).read_text())
    seconds, most_bytes = request["most_cpu_s"], request["most_bytes"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    try:
        content = _shaped(request)
    except Exception as error:
        words = str(error) or type(error).__name__
        Path(request["refusal"]).write_text(words[:2000], encoding="utf-8")
    else:
        Path(request["made"]).write_bytes(content)


def _shaped(request: dict[str, Any]) -> bytes:
    import onnx
    from onnx import inliner, shape_inference

    before, size = _peak_bytes(), os.path.getsize(request["model"])
    model = onnx.load(request["model"], load_external_data=False)
    overhead = _peak_bytes() - before - 2 * size
    if overhead > _MOST_OVERHEAD:
        raise ValueError(
            f"parsing its {size:,} bytes takes {overhead >> 20} MiB of memory, which is too much"
        )
    for tensor in model.graph.initializer:  # no shape depends on a large tensor
        _without_content(tensor)
    most_bytes = request["most_growth"] + 2 * model.ByteSize()
    _require_few(model, request["most_nodes"], most_bytes)
    if request["inline"] and model.functions:
        model = inliner.inline_local_functions(model)
    elif not request["inline"]:
        for node in model.graph.node:
            for attribute in node.attribute:
                _without_content(attribute.t)
                if len(attribute.s) > _KEPT_BYTES:  # a context
                    attribute.s = b""
    try:
        model = shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # the shapes known so far are kept
        print(error, file=sys.stderr)
    content = bytes(model.SerializeToString())
    if len(content) > most_bytes:  # the caller reads it in a process without limits
        raise ValueError(f"its nodes and shapes take {len(content) >> 20} MiB, which is too much")
    return content


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def _without_content(tensor: Any) -> None:
    if tensor.ByteSize() > _KEPT_BYTES:
        for name in _DATA:
            tensor.ClearField(name)


def _require_few(model: Any, most: int, most_bytes: int) -> None:
    """Raise ValueError for too many nodes or values, counting functions at each call."""
    graph = model.graph
    values = len(graph.initializer) + len(graph.value_info) + len(graph.input) + len(graph.output)
    for count, parts, bound in (
        (_sum_over_nodes(model, lambda _: 1), "nodes", most),
        (_sum_over_nodes(model, lambda _: 1, visits=2), "visits of nested nodes", _VISITS * most),
        (values, "values", most),
        (_sum_over_nodes(model, lambda node: node.ByteSize()), "bytes of nodes", most_bytes),
    ):
        if count > bound:
            raise ValueError(f"it has {count:,} {parts}; at most {bound:,} are supported")


def _sum_over_nodes(model: Any, weight: Callable[[Any], int], visits: int = 1) -> int:
    """Sum a weight over all nodes, those of a function at each of its calls.

    Nodes of a body, as of an If, count `visits` times for each body that they are nested in.
    """
    functions = {
        (function.domain, function.name, function.overload): function
        for function in model.functions
    }
    sums: dict[tuple[str, str, str], int | None] = {}

    def sum_of(nodes: Any) -> int:
        return sum(
            call(node)
            + visits
            * sum(
                sum_of(graph.node)
                for attribute in node.attribute
                for graph in (attribute.g, *attribute.graphs)
            )
            for node in nodes
        )

    def call(node: Any) -> int:
        key = (node.domain, node.op_type, node.overload)
        if key not in functions:
            return weight(node)
        if key not in sums:
            sums[key] = None
            sums[key] = sum_of(functions[key].node)
        if (total := sums[key]) is None:
            raise ValueError(f"its function {node.op_type} calls itself")
        return total

    return sum_of(model.graph.node)


if __name__ == "__main__":
    main(sys.argv[1])
