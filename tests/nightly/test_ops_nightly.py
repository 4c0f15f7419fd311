"""Ops of repeated and of changed models, with the real compiler and simulator: what is blamed."""

from itertools import combinations
from pathlib import Path

import onnx
import pytest

from harness.history.attempts import COMPARED, read_attempts
from harness.history.op_changes import judge_ops
from harness.results.run_folder import JOURNAL
from tests.integration.device_runs import DeviceRuns
from tests.planted import Graph

RUNS = 7
LARGE = 5


def model(kernel: tuple[int, int]) -> onnx.ModelProto:
    """Eight convolutions, of which one has another kernel; tensors stay as large as they are."""
    graph = Graph(0, (1, 32, 48, 48))
    x = "x"
    for number in range(8):
        high, wide = kernel if number == LARGE else (1, 1)
        pads = [high // 2, wide // 2, (high - 1) // 2, (wide - 1) // 2]
        x = graph.add("Conv", x, graph.weight(32, 32, high, wide, scale=0.1), pads=pads)
    return graph.model(x)


def profiled(lab: DeviceRuns, kernel: tuple[int, int]) -> Path:
    """The folder of a run of this model."""
    onnx.save(model(kernel), lab.folder / "model.onnx")
    code, output, _ = lab.run_files("model.onnx", "--profile=ops", "--lab", lab.file)
    assert code == 0, output
    return (lab.reports / "latest").resolve()


@pytest.mark.nightly
def test_comparisons_of_nothing_blame_no_op_and_one_that_is_ten_times_larger_is_first(
    tmp_path: Path,
) -> None:
    lab = DeviceRuns(tmp_path)
    small = [profiled(lab, (1, 1)) for _ in range(RUNS)]
    read = [read_attempts(folder / JOURNAL, COMPARED)[0] for folder in small]
    for first, other in combinations(read, 2):  # 21 of them
        findings = judge_ops(first, other)
        assert (findings.slower, findings.faster, findings.remade) == ((), (), ())
    large = [profiled(lab, (2, 5)) for _ in range(3)]
    for fails, (base, new) in enumerate(((small[-2], small[-1]), (small[-1], large[-1]))):
        completed = lab.qnn_harness("compare", base, new, "--fail-on", "ops")
        slower = [
            line for line in completed.stdout.splitlines() if line.startswith("- op slower: ")
        ]
        assert completed.returncode == fails, completed.stdout
        assert [line.split()[3] for line in slower[:1]] == [f"/conv_{LARGE}"] * fails, (
            completed.stdout
        )
