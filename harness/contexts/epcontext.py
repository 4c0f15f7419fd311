"""What ORT writes beside a context binary into its EPContext model."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.contexts.compiler import CompileError

_MAX_BYTES: Final = 16 << 20


def epcontext_max_size(model: Path, what: str) -> int | None:
    """The largest spill-fill size that an EPContext model states (bytes); None if it states none.

    Only nodes that carry a context count (`main_context`). Raises CompileError, whose text begins
    with `what`, if the file is none that the compiler can have meant.
    """
    import onnx

    try:
        too_large = model.stat().st_size > _MAX_BYTES
        loaded = None if too_large else onnx.load(model, load_external_data=False)
    except Exception as error:  # protobuf has no public name for what it raises
        raise CompileError(what, chain=[f"cannot read {model.name}: {error}"]) from error
    if loaded is None:
        raise CompileError(what, chain=[f"{model.name} has more than {_MAX_BYTES} bytes"])
    found = []
    for node in loaded.graph.node:
        numbers = {one.name: one.i for one in node.attribute if one.type == onnx.AttributeProto.INT}
        if node.op_type == "EPContext" and numbers.get("main_context") and "max_size" in numbers:
            found.append(int(numbers["max_size"]))
    return max(found, default=None)
