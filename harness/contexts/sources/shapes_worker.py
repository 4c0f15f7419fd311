"""The program that infers the shapes of an ONNX model: run by onnx_shapes.py, never imported.

    python -P shapes_worker.py REQUEST.json

It limits its own memory and time, so that whatever a model asks for ends here. Its only imports are
those of onnx.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

_DATA = (
    "raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data",
    "string_data",
)  # fmt: skip
_KEPT_BYTES = 4096


def main(request_path: str) -> None:
    """Do what a request says, and write the model, or why there is none."""
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

    model = onnx.load(request["model"], load_external_data=False)
    _require_few_nodes(model, request["most_nodes"])
    for tensor in model.graph.initializer:  # no shape follows from what is large
        _without_content(tensor)
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
    except Exception as error:  # shapes are told where they are known
        print(error, file=sys.stderr)
    return bytes(model.SerializeToString())


def _without_content(tensor: Any) -> None:
    if tensor.ByteSize() > _KEPT_BYTES:
        for name in _DATA:
            tensor.ClearField(name)


def _require_few_nodes(model: Any, most: int) -> None:
    """Raise ValueError if functions call each other so often that too many nodes come of it."""
    functions = {
        (function.domain, function.name, function.overload): function
        for function in model.functions
    }
    counts: dict[tuple[str, str, str], int | None] = {}

    def nodes_of(nodes: Any) -> int:
        return sum(
            call(node)
            + sum(
                nodes_of(graph.node)
                for attribute in node.attribute
                for graph in (attribute.g, *attribute.graphs)
            )
            for node in nodes
        )

    def call(node: Any) -> int:
        key = (node.domain, node.op_type, node.overload)
        if key not in functions:
            return 1
        if key not in counts:
            counts[key] = None
            counts[key] = nodes_of(functions[key].node)
        if (count := counts[key]) is None:
            raise ValueError(f"its function {node.op_type} calls itself")
        return count

    if functions and (count := nodes_of(model.graph.node)) > most:
        raise ValueError(f"its functions come to {count:,} nodes, and {most:,} are the most")


if __name__ == "__main__":
    main(sys.argv[1])
