"""Reproduce the case of this bundle with ONNX Runtime alone, without qnn-harness.

    python -m pip install onnxruntime-qnn    # README.txt says which version ran
    python reproduce.py

Exit codes: 0 all loaded and ran, 1 something failed or an output was not as expected.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import deque
from pathlib import Path
from typing import Any

import numpy

HERE = Path(__file__).resolve().parent
EP_NAME = "qnn"


def main() -> int:
    """Load, execute and free the sessions of reproduce.json in their order."""
    import onnxruntime
    import onnxruntime_qnn

    case = json.loads((HERE / "reproduce.json").read_text("utf-8"))
    library = onnxruntime_qnn.get_library_path()
    onnxruntime.register_execution_provider_library(EP_NAME, library)
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP_NAME][:1]
    print(f"onnxruntime {onnxruntime.__version__}, onnxruntime-qnn {onnxruntime_qnn.__version__}")
    loaded: deque[tuple[int, Any]] = deque(maxlen=case["at_once"])
    wrong = 0
    for place, number in enumerate(case["order"]):
        model = case["models"][number]
        print(f"session {place + 1} of {len(case['order'])}: {model['file']}", flush=True)
        loaded.append((number, session_of(model["file"], devices, case)))
        if case["at_once"] < len(case["order"]):
            wrong += run(loaded[-1][1], model, case)
    if case["at_once"] >= len(case["order"]):
        for number, session in loaded:
            wrong += run(session, case["models"][number], case)
    print("all ran" if not wrong else f"wrong outputs: {wrong}")
    return 1 if wrong else 0


def session_of(file: str, devices: list[Any], case: dict[str, Any]) -> Any:
    """Make a session of a model on the HTP."""
    import onnxruntime
    import onnxruntime_qnn

    options = onnxruntime.SessionOptions()
    for key, value in case["session_options"].items():
        options.add_session_config_entry(key, value)
    library = {"backend_path": onnxruntime_qnn.get_qnn_htp_path()}
    options.add_provider_for_devices(devices, library | case["provider_options"])
    try:
        return onnxruntime.InferenceSession(str(HERE / file), options, enable_fallback=False)
    except Exception:
        onnxruntime.set_default_logger_severity(0)  # once more: its log says which node, and why
        return onnxruntime.InferenceSession(str(HERE / file), options, enable_fallback=False)


def run(session: Any, model: dict[str, Any], case: dict[str, Any]) -> int:
    """Execute a session, and return the number of outputs beyond the limits of the case."""
    import onnxruntime

    inputs = {
        tensor.name: values(model["inputs"].get(tensor.name), tensor.name, tensor)
        for tensor in session.get_inputs()
    }
    names = [tensor.name for tensor in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, inputs), strict=True))
    expected = {
        name: values(model["expected"].get(name), name, outputs[name])
        for name in names
        if name in model["expected"]
    }
    against = "the expected file"
    if not expected and model["on_cpu"]:
        against = "ONNX Runtime on the CPU"
        providers = ["CPUExecutionProvider"]
        cpu = onnxruntime.InferenceSession(str(HERE / model["file"]), providers=providers)
        expected = dict(zip(names, cpu.run(names, inputs), strict=True))
    wrong = 0
    for name, right in expected.items():
        actual, right = (numpy.asarray(array, numpy.float64) for array in (outputs[name], right))
        figures = distance(actual, right)
        text = ", ".join(f"{figure} {value:.7g}" for figure, value in figures.items())
        print(f"  {name}: {text}, {numpy.count_nonzero(numpy.isnan(actual))} NaN against {against}")
        is_wrong = False
        for figure, limit in case["limits"].items():
            value = figures[figure]
            if not (value <= limit if figure == "max error" else value >= limit):
                print(f"  {name}: {figure} {value:.7g}, required {limit:g}")
                is_wrong = True
        if case["tolerance"] is not None:
            far = numpy.count_nonzero(~(numpy.abs(actual - right) <= case["tolerance"]))
            is_wrong |= bool(far) and name in model["expected"]
            print(f"  {name}: {far} of {actual.size} elements beyond {case['tolerance']:g}")
        wrong += is_wrong
    return wrong


def distance(actual: Any, right: Any) -> dict[str, float]:
    """Return the distance of an output from the right one; for equal ones the SQNR is infinite."""
    error, norms = actual - right, numpy.linalg.norm(actual) * numpy.linalg.norm(right)
    noise, signal = float(numpy.square(error).sum()), float(numpy.square(right).sum())
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return {
            "max error": float(numpy.abs(error).max(initial=0.0)),
            "cosine": float(numpy.vdot(actual, right) / norms) if norms else float(not noise),
            "SQNR": float(10 * numpy.log10(numpy.float64(signal) / noise)) if noise else numpy.inf,
        }


def values(file: str | None, name: str, like: Any) -> Any:
    """Return the content of a file as an array like an input or output; by default fixed noise.

    `like` is the metadata of an input of a session, or an array.
    """
    if isinstance(like, numpy.ndarray):
        kind, shape = like.dtype, like.shape
    else:
        type_name = like.type.removeprefix("tensor(").removesuffix(")")
        kind = numpy.dtype({"float": "float32", "double": "float64"}.get(type_name, type_name))
        shape = tuple(size if isinstance(size, int) else 1 for size in like.shape)
    if file is None:
        noise = numpy.random.default_rng(zlib.crc32(name.encode())).random(shape)
        return numpy.asarray(noise, kind)
    path = HERE / file
    array = numpy.load(path) if path.suffix == ".npy" else numpy.fromfile(path, kind)
    return array.reshape(shape)


if __name__ == "__main__":
    sys.exit(main())
