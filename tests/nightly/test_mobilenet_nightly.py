"""MobileNet-v2 in float, 8 and 16 bits, on every version and backend: how close it comes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from harness.models.models import Model
from harness.runtimes.pypi import all_versions
from tests.integration.device_runs import DeviceRuns

WITH_CPU = "2.47.0"
"""The one version whose wheel has QNN's CPU backend."""
STEPS = 257
"""So many steps of 16 bits are one of 8."""
LEAST = {"float.onnx": 55.0, "eight.onnx": 30.0, "sixteen.onnx": 38.0}
"""The least ratio of signal to noise, in dB: 61, 33 and 40 were seen on HTP."""


def sixteen_bits() -> onnx.ModelProto:
    """The 8-bit twin with activations of 16 bits, in the same ranges, over the same weights."""
    model = Model("mobilenet-v2-8bit").build()
    shapes = {
        name
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
        for name in node.input[1:]
    }
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.name in shapes and values.dtype == np.uint8:
            values = values.astype("u2") * np.uint16(STEPS)
        elif tensor.name in shapes or tensor.name.endswith("_b_scale"):
            values = values / np.float32(STEPS)
        elif tensor.name.endswith("_b"):
            values = values * np.int32(STEPS)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    model.opset_import[0].version, model.ir_version = 21, 10  # the first with such numbers
    return model


@pytest.mark.nightly
def test_every_version_comes_as_close_to_the_float_model_as_its_numbers_can(
    tmp_path: Path,
) -> None:
    lab = DeviceRuns(tmp_path)
    models = {
        "float.onnx": Model("mobilenet-v2").build(),
        "eight.onnx": Model("mobilenet-v2-8bit").build(),
        "sixteen.onnx": sixteen_bits(),
    }
    for name, model in models.items():
        onnx.save(model, lab.folder / name)
    options = (
        "--engine=ort",
        "--backend=htp,cpu",
        "--qnn=all",
        "--reference=float.onnx",
        "--lab",
        lab.file,
    )
    _, output, records = lab.run_files(*models, *options)
    closeness, table = {}, output.partition("By version and backend")[2]
    for record in records:
        name, axes = record["case"].partition("::")[0].rpartition("/")[2], record["axes"]
        key = name, str(axes["qnn"]), axes["backend"]
        if record["outcome"] != "passed":
            # the backend for the CPU takes floats, and lies in one wheel alone
            assert axes["backend"] == "cpu", output
            assert name != "float.onnx" or axes["qnn"] != WITH_CPU, output
            continue
        (accuracy,), (graph,) = (record["measurements"][name_] for name_ in ("accuracy", "graphs"))
        closeness[key] = accuracy["sqnr_db"]
        assert accuracy["against"] == "float.onnx on the CPU"
        assert accuracy["sqnr_db"] > LEAST[name], key
        assert accuracy["cosine"] > (0.999 if name == "eight.onnx" else 0.9999), key
        assert graph["median_us"] > 0
        # one row with all of it
        (row,) = [r for r in table.splitlines() if r.split()[:3] == list(key)]
        assert f"{accuracy['sqnr_db']:.4g}" in row.split()
        assert f"{accuracy['cosine']:.7g}" in row.split()
    versions = [str(version) for version in all_versions()]
    everywhere = {(name, version, "htp") for name in models for version in versions}
    assert set(closeness) == everywhere | {("float.onnx", WITH_CPU, "cpu")}
    assert len(versions) >= 5
    for version in versions:
        sqnr = [closeness[name, version, "htp"] for name in ("eight.onnx", "sixteen.onnx")]
        assert sqnr[0] + 5 < sqnr[1] < closeness["float.onnx", version, "htp"]
