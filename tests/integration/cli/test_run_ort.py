"""`qnn-harness run --engine ort`: ONNX Runtime loads what a user has, with its real libraries."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from harness.models.builtin_models import Model
from tests.hostile_models import model
from tests.integration.device_runs import DeviceRuns

FIELD = Path(__file__).parents[2] / "field"
EMBEDDED, EXTERNAL = (FIELD / f"qnn_multi_ctx_{name}.onnx" for name in ("embed", "external"))
ORT = "--engine=ort"


@pytest.mark.slow
def test_models_that_others_compiled_run_with_each_version(lab: DeviceRuns) -> None:
    versions = ("--qnn=2.47.0,2.51.0", "--ort=1.24.1,1.31.1")
    # beside the tests there is a conftest.py, which a search would not run
    embedded = shutil.copy(EMBEDDED, lab.folder)
    code, stderr, records = lab.run_files(embedded, EXTERNAL, ORT, *versions)
    assert (code, len(records)) == (1, 8), stderr
    placements = set()
    for record in records:
        placements.add((record["axes"]["qnn"], record["axes"]["ort"]))
        assert (record["axes"]["compiler"], record["suite"]) == (None, "run_ort")
        assert record["runtime"]["contexts_by"].startswith("2.22.0.")
        figures = record["measurements"]
        assert figures["ort_version"] == record["axes"]["ort"]
        if (record["axes"]["qnn"], record["axes"]["ort"]) == ("2.47.0", "1.31.1"):
            assert [finding["code"] for finding in record["preflight"]] == ["ort-too-new"]
            assert (record["outcome"], record["error"]["api"]) == ("failed", "CreateSession")
            continue
        assert (record["outcome"], record["outputs"], record["preflight"]) == (
            "passed",
            "agreement",
            [],
        )
        assert (figures["placement"], figures["runs"]) == ({"QNNExecutionProvider": 2}, 2)
    assert placements == {
        (qnn, ort) for qnn in ("2.47.0", "2.51.0") for ort in ("1.24.1", "1.31.1")
    }
    case = f"{records[0]['case'].partition('::')[0]}::test_session"
    options = ("--axis=ort", "--ort=1.24.1,1.31.1", "--qnn=2.47.0", f"--lab={lab.file}")
    completed = lab.qnn_harness("bisect", f"--case={case}", *options, code=0)
    assert "1.31.1" in completed.stdout


@pytest.mark.slow
def test_an_option_of_contexts_is_one_of_the_provider_where_it_has_one(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    (tmp_path / "tiny.onnx").write_bytes(Model("tiny").serialized())
    limit = "--context-option=reused_io_limit_mb=64"
    versions = "--qnn=2.50,2.51.0"
    code, stderr, records = lab.run_files(tmp_path / "tiny.onnx", ORT, limit, versions)
    older, newer = records
    assert (code, older["outcome"]) == (0, "unsupported"), stderr
    assert "QNN 2.50.40 has no option htp_reused_io_limit_mb" in older["error"]["message"]
    assert newer["outcome"] == "passed"
    assert newer["measurements"]["context_options"] == {"reused_io_limit_mb": 64}
    assert newer["measurements"]["provider_options"] == {"htp_reused_io_limit_mb": "64"}
    # reading a binary, the library refuses it
    embedded = shutil.copy(EMBEDDED, lab.folder)
    code, stderr, (refused,) = lab.run_files(embedded, ORT, limit, "--qnn=2.51.0")
    assert (code, refused["outcome"], refused["error"]["code"]) == (0, "unsupported", 5010), stderr
    wrong = "--context-option=init_acceleration=1"
    code, stderr, records = lab.run_files(tmp_path / "tiny.onnx", ORT, wrong, "--qnn=2.51.0")
    assert (code, records) == (2, []), stderr
    assert "error: --context-option: ONNX Runtime has no option for init_acceleration" in stderr


@pytest.mark.slow
def test_a_clean_network_runs_on_qnns_cpu_backend_where_there_is_one(
    lab: DeviceRuns, tmp_path: Path
) -> None:
    weights = np.random.default_rng(0).normal(size=(4, 4, 3, 3)).astype(np.float32) / 10
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    cnn = model(nodes, (1, 4, 8, 8))
    cnn.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(cnn, tmp_path / "cnn.onnx")
    arguments = ("--backend=cpu", "--qnn=2.47.0,2.51.0", "--limit=tolerance=0.001")
    code, stderr, records = lab.run_files(tmp_path / "cnn.onnx", ORT, *arguments)
    runs, lacks = records
    assert (runs["outcome"], runs["outputs"]) == ("passed", "reference"), stderr
    assert list(runs["measurements"]["placement"]) == ["QNNExecutionProvider"]
    (figure,) = runs["measurements"]["accuracy"]
    assert (figure["output"], figure["elements"]) == ("y", 256)
    assert figure["cosine"] > 0.999999
    assert figure["against"] == "ONNX Runtime on the CPU"
    arguments = ("--backend=htp,cpu", "--qnn=2.47.0")
    _, stderr, both = lab.run_files(tmp_path / "cnn.onnx", ORT, *arguments)
    assert [record["axes"]["backend"] for record in both] == ["htp", "cpu"]
    _, _, rows = stderr.partition("By version and backend")
    assert [row.split()[:3] for row in rows.splitlines()[2:4]] == [
        ["cnn.onnx", "2.47.0", "htp"],
        ["cnn.onnx", "2.47.0", "cpu"],
    ]
    assert (code, lacks["outcome"]) == (0, "unsupported")
    diagnosis = lacks["error"]["diagnosis"]
    assert (diagnosis["id"], diagnosis["confidence"]) == ("backend-not-loaded", "known")


def test_a_model_on_another_backend_is_run_by_onnx_runtime(lab: DeviceRuns) -> None:
    (lab.folder / "m.onnx").write_bytes(Model("tiny").serialized())
    code, stderr, (record,) = lab.run_files("m.onnx", "--backend=cpu", "--qnn=2.47.0")
    assert (code, record["outcome"], record["engine"]) == (0, "passed", "ort"), stderr
    (figure,) = record["measurements"]["accuracy"]
    assert figure["cosine"] > 0.999999
