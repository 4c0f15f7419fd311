"""The ranges that MobileNet-v2's twin is made of are those of a calibration run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness.models import models
from harness.models.models import Model
from harness.runtimes.catalog import Catalog

RUN = """
import json, sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs()]
for path in sys.argv[2:]:
    found = session.run(names, {"x": numpy.load(path)})
    ranges = zip(names, [[float(one.min()), float(one.max())] for one in found])
    print(json.dumps(dict(ranges)))
"""


def test_ranges_are_those_of_a_calibration_run(catalog: Catalog, tmp_path: Path) -> None:
    host = catalog.compiler_host("2.51.0")
    model = Model("mobilenet-v2").build()
    names = [layer.name for layer in models.layers() if not layer.relu6]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names[:-1]]
    model.graph.output.extend(outputs)
    onnx.save(model, tmp_path / "model.onnx")
    pictures = []
    for variant in range(1000, 1004):
        picture = Model("mobilenet-v2", variant=variant).inputs()["x"]
        np.save(tmp_path / f"{variant}.npy", picture)
        pictures.append(picture)
    files = [str(tmp_path / f"{variant}.npy") for variant in range(1000, 1004)]
    completed = subprocess.run(
        [sys.executable, "-P", "-c", RUN, str(tmp_path / "model.onnx"), *files],
        env=os.environ | {"PYTHONPATH": str(host.ort_root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    runs = [json.loads(line) for line in completed.stdout.splitlines()]
    for run, picture in zip(runs, pictures, strict=True):
        run["x"] = [float(picture.min()), float(picture.max())]
    for name, (least, most) in models.RANGES.items():
        least_and_most = min(run[name][0] for run in runs), max(run[name][1] for run in runs)
        assert np.allclose(least_and_most, (least, most), atol=0.02), (name, least_and_most)
