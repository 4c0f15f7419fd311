"""The program that runs a .tflite on LiteRT's CPU: run by litert_compiler.py, never imported.

    python -P litert_worker.py REQUEST.json

Its only imports are numpy and the ai_edge_litert on PYTHONPATH. An error of LiteRT is written, as
one line, to the file that the request names; stdout and stderr belong to the libraries.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(request_path: str) -> None:
    """Run the model of a request, and write the tensors that it names."""
    request = json.loads(Path(request_path).read_text())
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # type: ignore[import-not-found]

    try:
        _run(request, Interpreter, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    except (RuntimeError, ValueError) as error:
        Path(request["refused"]).write_text(" ".join(str(error).split())[:2000])


def _run(request: dict[str, Any], interpreter_of: Any, resolver: Any) -> None:
    import numpy

    # Every tensor is kept, and none belongs to a delegate: all can be read afterwards.
    interpreter = interpreter_of(
        request["model"],
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=resolver,
    )
    interpreter.allocate_tensors()
    for tensor in interpreter.get_input_details():
        path = request["inputs"][str(tensor["index"])]
        values = numpy.fromfile(path, tensor["dtype"]).reshape(tensor["shape"])
        interpreter.set_tensor(tensor["index"], values)
    interpreter.invoke()
    for number, path in request["wanted"].items():
        numpy.ascontiguousarray(interpreter.get_tensor(int(number))).tofile(path)


if __name__ == "__main__":
    main(sys.argv[1])
