"""`model compile` and `fit` of a model, with the real compiler."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.hostile_models import model as chain
from tests.integration.cli.test_commands import QNN_HARNESS
from tests.integration.in_process import qnn_harness


def written(path: Path, *operators: str) -> Path:
    """A chain of operators over 2 x 8 floats."""
    names = ["x", *(f"t{number}" for number in range(len(operators) - 1)), "y"]
    nodes = [
        helper.make_node(operator, [names[number]], [names[number + 1]])
        for number, operator in enumerate(operators)
    ]
    onnx.save(chain(nodes, (2, 8)), path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return written(tmp_path / "model.onnx", "Relu", "Sigmoid")


def inspected(path: Path) -> dict[str, object]:
    (context,) = json.loads(qnn_harness("model", "inspect", path, "--json").stdout)["contexts"]
    return dict(context)


@pytest.mark.slow
def test_a_binary_is_for_exactly_that_soc(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.bin"
    completed = qnn_harness(
        *("model", "compile", model, "--soc", "sa8255", "--qnn", "2.47", "-o", out), code=0
    )
    context = inspected(out)
    assert (context["htp_arch"], context["soc_model"]) == (73, 52)
    assert str(context["build_id"]).startswith("v2.47.0")
    for figure in (f"{context['memory_bytes']:,} bytes", context["sha256"]):
        assert str(figure) in completed.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.bin", "model.onnx"]


@pytest.mark.slow
def test_what_the_compiler_refuses_ends_with_1_and_no_file(tmp_path: Path) -> None:
    model = written(tmp_path / "model.onnx", "Erf", "Acosh")
    completed = qnn_harness(
        "model", "compile", model, "--soc", "SM8650", "-o", tmp_path / "model.bin", code=1
    )
    assert "Acosh_1 (Acosh, float32 [2, 8])" in completed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    fits = qnn_harness("model", "fit", tmp_path, "--soc", "SM8650")
    assert (fits.returncode, fits.stderr) == (1, completed.stderr), "in the same words"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--soc SM865 -o a.bin", "--soc: 'SM865'"),
        ("--soc QCS610 -o a.bin", "--soc: 'QCS610'"),
        ("--soc SM8650 -o gone/a.bin", "--output: "),
        ("--soc SM8650 -o .", "--output: "),
        ("--soc SM8650 -o ctx.onnx", ".bin"),
        ("--soc SM8650 -o a.bin --qnn 9.9", "'9.9'"),
        ("--soc SM8650 -o a.bin --qnn all", "--qnn: 'all'"),
    ],
)
def test_wrong_input_is_told_before_anything_is_compiled(
    arguments: str, named: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    completed = qnn_harness("model", "compile", "model.onnx", *arguments.split())
    assert (completed.returncode, named in completed.stderr) == (2, True), completed.stderr
    assert list(tmp_path.iterdir()) == [model]


def test_an_interrupted_one_leaves_nothing(model: Path, tmp_path: Path) -> None:
    command = [*QNN_HARNESS, "model", "compile", model, "--soc", "SM8650", "-o", "b.bin"]
    started = subprocess.Popen(
        [sys.executable, *map(str, command[1:])], cwd=tmp_path, stderr=subprocess.PIPE
    )
    with started:
        try:
            started.wait(0.8)
        except subprocess.TimeoutExpired:
            started.send_signal(signal.SIGINT)
        started.communicate(timeout=60)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"model.onnx"} | ({"b.bin"} if started.returncode == 0 else set())
