"""`qnn-harness run --engine litert`: real models, LiteRT's real compiler, the real libraries."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from harness.core.state_folders import cache_root
from harness.runtimes.pypi import WheelCache, WheelRequest
from tests.integration.device_runs import DeviceRuns

# 14 models of LiteRT lie in it
WHEEL = WheelRequest("mediapipe", "0.10.14", "manylinux_2_17_x86_64", "3.11", "cp311")
FACE = "face_detection/face_detection_short_range"
POSE = "pose_detection/pose_detection"
SELFIE = "selfie_segmentation/selfie_segmentation"
KNOWN = """\
schema: 1
known_issues:
  - id: litert-with-old-qnn
    link: https://github.com/google-ai-edge/LiteRT-LM/issues/2226
    signature: {outcome: failed, api: null, code: null, message: is mismatched}
    conditions: {engine: litert, compiler: "<2.50"}
    until: 2099-01-01
"""


def take(model: str, folder: Path, name: str | None = None) -> str:
    """A model of MediaPipe's wheel (36 MB, fetched into the cache once); how it is called."""
    wheel = WheelCache(cache_root()).fetch(WHEEL)
    name = name or f"{model.rpartition('/')[2]}.tflite"
    with zipfile.ZipFile(wheel.path) as archive:
        (folder / name).write_bytes(archive.read(f"mediapipe/modules/{model}.tflite"))
    return name


@pytest.mark.slow
def test_a_model_is_compiled_run_and_compared_with_the_cpu(lab: DeviceRuns) -> None:
    face = take(FACE, lab.folder)
    (lab.folder / "known.yaml").write_text(KNOWN)
    versions = "--compiler=2.49.40,2.51.0"
    code, stderr, records = lab.run_files(face, versions, "--", "--known-issues=known.yaml")
    assert code == 0, stderr
    old, new = sorted(records, key=lambda record: str(record["axes"]["compiler"]))
    assert (new["engine"], new["outcome"], new["outputs"]) == ("litert", "passed", "reference")
    assert (new["suite"], new["axes"]["compiler"]) == ("run_litert", "2.51.0")
    figures = new["measurements"]
    compared = figures["outputs"]
    assert (compared["compared"], compared["beyond_tolerance"]) == (2, 0)
    # 16 bits are not 32
    assert 0 < compared["max_abs"] < 1
    litert = figures["litert"]
    assert (litert["soc"], litert["reference"]) == ("SM8550", "LiteRT's CPU")
    assert (len(figures["nodes"]), figures["partitions"]) == (164, 1)
    last = figures["nodes"][-1]
    assert (last["node"], last["op_type"], last["on"]) == ("regressors", "CONCATENATION", "NPU")
    # a plug-in that refuses is a failure with a known cause
    assert (old["outcome"], old["cause"], old["expected"]) == (
        "failed",
        "target",
        {"known_issue": "litert-with-old-qnn"},
    )
    assert old["error"]["diagnosis"]["id"] == "litert-version"
    assert "Qnn System library version 1.13.0" in old["error"]["message"]
    # and nothing of it is taken for a model the next time
    code, stderr, (again,) = lab.run_files(face, "--engine=litert", "--compiler=2.49.40")
    assert (code, again["error"]["diagnosis"]["id"]) == (1, "litert-version"), stderr


@pytest.mark.nightly
def test_a_model_of_which_only_some_is_taken(lab: DeviceRuns) -> None:
    pose, selfie = take(POSE, lab.folder), take(SELFIE, lab.folder)
    code, stderr, records = lab.run_files(pose, selfie, "--engine=litert", "--qnn=2.51.0")
    assert code == 0, stderr
    by_cpu, alone = records
    figures = by_cpu["measurements"]
    on_cpu = [row["op_type"] for row in figures["nodes"] if row["on"] == "CPU"]
    assert (set(on_cpu), len(on_cpu), len(figures["nodes"])) == ({"DENSIFY"}, 38, 291)
    assert figures["partitions"] == 39
    assert (by_cpu["outputs"], figures["loaded"]) == ("reference", 39)
    assert figures["outputs"]["beyond_tolerance"] == 0
    # LiteRT's CPU lacks an operator of MediaPipe's: that is told, and nothing is compared
    text = alone["measurements"]["litert"]
    assert (alone["outcome"], alone["outputs"]) == ("passed", "agreement")
    figures = alone["measurements"]
    (on_cpu,) = [row for row in figures["nodes"] if row["on"] == "CPU"]
    assert (on_cpu["op_type"], on_cpu["node"]) == ("Convolution2DTransposeBias", "segment")
    assert (len(figures["nodes"]), figures["partitions"]) == (246, 2)
    assert "unresolved custom op: Convolution2DTransposeBias" in text["reference"]
    # who gives a tolerance, or inputs, would believe that something was done with them
    np.zeros((1, 256, 256, 3), np.float32).tofile(lab.folder / "in.raw")
    code, stderr, (record,) = lab.run_files(selfie, "--engine=litert", "--limit=min-sqnr=20")
    assert (code, record["cause"]) == (2, "config"), stderr
    for option in ("limit=tolerance=0.5", "inputs=in.raw"):
        code, stderr, (record,) = lab.run_files(selfie, "--engine=litert", f"--{option}")
        assert (code, record["outcome"], record["cause"]) == (2, "error", "config"), stderr


@pytest.mark.slow
def test_outputs_that_are_further_off_fail(lab: DeviceRuns) -> None:
    face = take(FACE, lab.folder)
    code, stderr, (record,) = lab.run_files(face, "--engine=litert", "--limit=tolerance=0.0001")
    assert (code, record["outcome"], record["error"]["api"]) == (1, "failed", "QnnGraph_execute"), (
        stderr
    )
    assert record["error"]["diagnosis"]["id"] == "wrong-outputs"
    (reference,) = {each["against"] for each in record["measurements"]["accuracy"]}
    assert reference == "LiteRT's CPU"
    # a condition takes the place of the usual tolerance
    code, stderr, (close,) = lab.run_files(face, "--engine=litert", "--limit=min-cosine=0.999")
    assert (code, len(close["measurements"]["accuracy"])) == (0, 2), stderr
    code, stderr, (off,) = lab.run_files(face, "--engine=litert", "--limit=max-error=0.00001")
    assert (code, off["outcome"]) == (1, "failed"), stderr
    assert "max_error[regressors]: " in off["error"]["message"]
    # other inputs, other outputs; the CPU gets them, too
    np.zeros((1, 128, 128, 3), np.float32).tofile(lab.folder / "in.raw")
    code, stderr, (zeros,) = lab.run_files(face, "--engine=litert", "--inputs=in.raw")
    assert (code, zeros["outputs"]) == (0, "reference"), stderr
    outputs = [record["measurements"]["kept_outputs"] for record in (record, zeros)]
    assert outputs[0] != outputs[1]
