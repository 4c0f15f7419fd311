"""`qnn-harness run` of a model of which the NPU refuses nodes, with the real libraries."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.hostile_models import model, relu
from tests.integration.device_runs import DeviceRuns

SHAPE = [1, 4, 8, 8]


def two_refused(path: Path) -> None:
    """A model of six nodes, of which QNN's provider takes no Shrink and no Acosh."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu_1"),
        helper.make_node("Shrink", ["a"], ["b"], name="shrink_1", lambd=-0.5),
        helper.make_node("Exp", ["b"], ["c"], name="exp_1"),
        helper.make_node("Acosh", ["c"], ["d"], name="acosh_1"),
        helper.make_node("Add", ["d", "a"], ["e"], name="add_1"),
        helper.make_node("Tanh", ["e"], ["y"], name="tanh_1"),
    ]
    onnx.save(model(nodes, SHAPE), path)


def places(record: dict[str, Any]) -> dict[str, str]:
    return {row["node"]: row["on"] for row in record["measurements"]["nodes"]}


WHERE = {
    "relu_1": "NPU",
    "shrink_1": "CPU",
    "exp_1": "NPU",
    "acosh_1": "CPU",
    "add_1": "NPU",
    "tanh_1": "NPU",
}
REASON = "Operators of type `Shrink` are not supported by QNN EP."


@pytest.mark.slow
def test_with_fallback_a_model_passes_and_its_record_tells_what_ran_where(lab: DeviceRuns) -> None:
    two_refused(lab.folder / "two.onnx")
    arguments = ("--fallback=allow", "--qnn=2.47.0,2.51.0", "--ort=1.24.1,1.27.0")
    code, stderr, records = lab.run_files("two.onnx", "--limit=tolerance=0.02", *arguments)
    assert (code, len(records)) == (0, 4), stderr
    for record in records:
        assert (record["outcome"], record["outputs"]) == ("passed", "reference")
        figures = record["measurements"]
        assert places(record) == WHERE
        assert {row["node"]: row["reason"] for row in figures["nodes"]}["shrink_1"] == REASON
        # a goes to both, b, c and d each to the other side
        assert figures["partitions"] == 3
        assert figures["transfers"] == {"tensors": 5, "bytes": 5 * 4 * 4 * 8 * 8}
        assert {graph["on"] for graph in figures["graphs"]} == {
            "HTP v73, simulated on this computer"
        }
    node = helper.make_node("Shrink", ["x"], ["y"], lambd=-0.5)
    onnx.save(model([node], SHAPE), lab.folder / "refused.onnx")
    code, stderr, (record,) = lab.run_files("refused.onnx", "--fallback=allow")
    (graph,) = record["measurements"]["graphs"]
    assert (code, graph["on"]) == (0, "the CPU alone: no node ran on the NPU"), stderr


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ort", "qnn"])
def test_without_fallback_it_fails_and_names_what_is_refused(lab: DeviceRuns, engine: str) -> None:
    two_refused(lab.folder / "two.onnx")
    (lab.folder / "in").mkdir()
    np.zeros(SHAPE, np.float32).tofile(lab.folder / "in/x.raw")
    arguments = ("two.onnx", "--inputs=in", f"--engine={engine}")
    code, stderr, (record,) = lab.run_files(*arguments, "--fallback=refuse")
    assert (code, record["outcome"], record["cause"]) == (1, "failed", "target"), stderr
    error = record["error"]
    assert error["diagnosis"]["id"] == "op-type-unsupported"
    first, second, help_, *_ = error["message"].splitlines()
    assert "shrink_1 (Shrink, float32 [1, 4, 8, 8])" in first
    assert first.endswith(REASON)
    assert "acosh_1 (Acosh, float32 [1, 4, 8, 8])" in second
    assert "--fallback=allow" in help_
    assert places(record) == WHERE


def test_an_engine_that_leaves_nothing_to_the_cpu_says_so(lab: DeviceRuns) -> None:
    two_refused(lab.folder / "two.onnx")
    code, stderr, _ = lab.run_files("two.onnx", "--engine=qnn", "--fallback=allow")
    assert code == 2
    assert "--engine ort" in stderr


def allowed(path: Path) -> None:
    onnx.save(relu(1, 4), path)


@pytest.mark.slow
def test_a_refused_model_that_passes_once_it_is_exported_anew_is_no_flake(lab: DeviceRuns) -> None:
    file = lab.folder / "net.onnx"
    ends = []
    for export in (two_refused, allowed, two_refused, allowed):
        export(file)
        (record,) = lab.run("--qnn", "2.51.0", suites=file).cases
        ends.append((record["outcome"], record["files_sha256"]))
    assert [outcome for outcome, _ in ends] == ["failed", "passed"] * 2
    assert ends[:2] == ends[2:]
    assert ends[0][1] != ends[1][1]
    stdout = lab.qnn_harness("history", "list", "--reports", lab.reports).stdout
    assert "F.F." in stdout
    assert "flaky" not in stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "limit", "end"),
    [
        pytest.param((), "", ("failed", "target"), id="refused"),
        pytest.param((1, 3_000_000_000), "", ("error", "config"), id="too large"),
        pytest.param((1, 4), "    storage_limit_mb: 30\n", ("error", "infra"), id="full"),
    ],
)
def test_a_case_that_never_came_to_its_file_says_which_it_was(
    lab: DeviceRuns, shape: tuple[int, ...], limit: str, end: tuple[str, str]
) -> None:
    file = lab.folder / "net.onnx"
    onnx.save(relu(*shape), file) if shape else two_refused(file)
    allowed(lab.folder / "tiny.onnx")  # or nothing could be run, and nothing was recorded
    lab.file.write_text(lab.file.read_text() + limit)
    _, stderr, records = lab.run_files("net.onnx", "tiny.onnx", "--qnn=2.51.0")
    (record,) = (record for record in records if record["case"].startswith("net.onnx::"))
    assert (record["outcome"], record["cause"]) == end, stderr
    assert record["files_sha256"] == sha256(file.read_bytes()).hexdigest()
