"""Inputs and outputs of ExecuTorch's programs, in each form, against a runner without the probe.

The runner is built of ExecuTorch's runtime alone (`executorch_runner.cpp`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.diagnosis.verdict import judge
from harness.probe.plan import Step
from harness.runtimes.catalog import Catalog
from tests.integration.conftest import RuntimeFor
from tests.integration.probe.test_executorch import TAKEN, RunProgram, execute, run_program
from tests.needed import need

__all__ = ["run_program"]  # a fixture

PROGRAMS = Path(__file__).parents[2] / "executorch"
LLAMA, FORMS = PROGRAMS / "stories-like.pte", PROGRAMS / "forms.pte"
SOURCE = Path(__file__).with_name("executorch_runner.cpp")
X = np.arange(1, 5, dtype=np.float32)

Runner = Callable[[Path, str, Sequence[np.ndarray], Path], list[bytes]]


@pytest.fixture(scope="module")
def runner(
    catalog: Catalog, runtime_for: RuntimeFor, tmp_path_factory: pytest.TempPathFactory
) -> Runner:
    """Gives the outputs of a method of a program for these inputs."""
    need("c++", "g++", "clang++")
    wheel = catalog.executorch("linux-x64").path / "executorch"
    program = tmp_path_factory.mktemp("runner") / "runner"
    headers = (wheel / "include", wheel / "include/executorch/runtime/core/portable_type/c10")
    libraries = ("executorch", "executorch_backend_qnn", "executorch_kernels_optimized")
    command = ["c++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", SOURCE, "-o", program]
    command += ["-DC10_USING_CUSTOM_GENERATED_MACROS", *(f"-isystem{header}" for header in headers)]
    command += [f"-L{wheel}/lib", f"-Wl,--no-as-needed,-rpath,{wheel}/lib"]
    subprocess.run([*command, *(f"-l{library}" for library in libraries)], check=True)
    runtime = runtime_for(TAKEN)
    paths = ":".join(str(runtime.root / folder) for folder in runtime.library_dirs)

    def run(file: Path, method: str, inputs: Sequence[np.ndarray], folder: Path) -> list[bytes]:
        for number, values in enumerate(inputs):
            values.tofile(folder / f"input.{number}.raw")
        subprocess.run(
            [program, file, method, folder],
            env={"LD_LIBRARY_PATH": paths},
            check=True,
            timeout=60,
            capture_output=True,
        )
        written = len(list(folder.glob("output.*.raw")))
        return [(folder / f"output.{number}.raw").read_bytes() for number in range(written)]

    return run


def llama_inputs(tokens: int, context: int = 16) -> list[np.ndarray]:
    """Tokens, mask, positions, and caches of keys and of values that are not empty."""
    random = np.random.default_rng(5)
    old = context - tokens
    mask = np.triu(np.full((tokens, context), -255.0, np.float32), old + 1)
    keys = [random.normal(size=(1, 2, 8, old)).astype(np.float32) for _ in range(2)]
    values = [random.normal(size=(1, 2, old, 8)).astype(np.float32) for _ in range(2)]
    ids = random.integers(0, 64, tokens, np.int32)
    return [ids, mask, np.arange(old, context, dtype=np.int32), *keys, *values]


@pytest.mark.parametrize(("method", "tokens"), [("kv_forward", 1), ("prefill_forward", 8)])
def test_a_hybrid_llama_gives_what_a_runner_gets(
    run_program: RunProgram, runner: Runner, tmp_path: Path, method: str, tokens: int
) -> None:
    outputs = runner(LLAMA, method, llama_inputs(tokens), tmp_path)
    assert [len(output) for output in outputs] == [tokens * 64 * 4, *[tokens * 2 * 8 * 4] * 4]
    assert all(np.frombuffer(output, np.float32).any() for output in outputs)
    fields = {f"input.{n}": str(tmp_path / f"input.{n}.raw") for n in range(7)}
    fields |= {f"expect.{n}": str(tmp_path / f"output.{n}.raw") for n in range(5)}
    steps = [Step("executorch-device"), Step("executorch-context", {"context": "0"})]
    run = Step("executorch-run", fields | {"repeat": "3"})
    completed = run_program(TAKEN, *steps, run, run, program=LLAMA, method=method)
    assert judge(completed).explanation() == "passed"
    compared = completed.transcript.steps[3].data["outputs"]
    assert [comparison["max_abs"] for comparison in compared] == [0] * 5
    # a wrong one is found: what is compared is what was written
    wrong = tmp_path / "output.1.raw"
    wrong.write_bytes(bytes(len(outputs[1])))
    verdict = judge(run_program(TAKEN, *steps, run, program=LLAMA, method=method))
    assert verdict.error is not None
    assert "output 1 has" in verdict.error.message


@pytest.mark.parametrize(
    ("method", "inputs", "outputs"),
    [
        # whole numbers have 8 bytes, truth values one
        ("numbers", [X], [np.int64(7), X + 1, np.float64(2.5), X * 2, np.True_]),
        ("same", [X], [X, X + 1]),
        ("constant", [X], [np.arange(4, dtype=np.float32), X + np.arange(4, dtype=np.float32)]),
        ("rows", [np.arange(32, dtype=np.float32)], [np.arange(32, dtype=np.float32) * 2]),
        ("factor", [X, X], [X * 4]),
    ],
)
def test_outputs_of_every_form_are_compared(
    run_program: RunProgram,
    runner: Runner,
    tmp_path: Path,
    method: str,
    inputs: list[np.ndarray],
    outputs: list[np.ndarray],
) -> None:
    fields = {}
    for name, values in (("input", inputs), ("expect", outputs)):
        for number, output in enumerate(values):
            (tmp_path / f"{name}.{number}.raw").write_bytes(output.tobytes())
            fields[f"{name}.{number}"] = str(tmp_path / f"{name}.{number}.raw")
    run = Step("executorch-run", fields | {"repeat": "3"})
    completed = run_program(TAKEN, run, run, program=FORMS, method=method)
    assert judge(completed).explanation() == "passed"
    assert len(completed.transcript.steps[2].data["digests"]) == len(outputs)
    if method != "factor":  # the runner gives tensors only
        tensors = [output.tobytes() for output in outputs if output.ndim]
        assert runner(FORMS, method, inputs, tmp_path) == tensors
    for number, output in enumerate(outputs):  # each of them is looked at
        other = bytearray(output.tobytes())
        other[-1] ^= 1
        (tmp_path / "other.raw").write_bytes(other)
        step = Step("executorch-run", fields | {f"expect.{number}": str(tmp_path / "other.raw")})
        error = judge(run_program(TAKEN, step, program=FORMS, method=method)).error
        assert error is not None
        assert f"output {number} has 1 of" in error.message


def test_what_a_program_remembers_makes_no_difference_between_runs(
    run_program: RunProgram, tmp_path: Path
) -> None:
    X.tofile(tmp_path / "x.raw")
    run = execute(input_0=str(tmp_path / "x.raw"), save_0=str(tmp_path / "y.raw"), repeat="3")
    completed = run_program(TAKEN, run, run, program=FORMS, method="counting")
    assert judge(completed).explanation() == "passed"
    assert (
        completed.transcript.steps[1].data["digests"]
        == completed.transcript.steps[2].data["digests"]
    )
    once = np.fromfile(tmp_path / "y.raw", np.float32)
    alone = execute(input_0=str(tmp_path / "x.raw"), expect_0=str(tmp_path / "y.raw"))
    assert judge(run_program(TAKEN, alone, program=FORMS, method="counting")).outcome == "passed"
    assert np.isfinite(once).all()


def test_files_for_another_number_of_tensors_are_the_users_mistake(
    run_program: RunProgram, tmp_path: Path
) -> None:
    (tmp_path / "x.raw").write_bytes(X.tobytes())
    file = str(tmp_path / "x.raw")
    for fields, message in (
        ({"input_0": file}, "inputs of the method: 2, files given: 1"),
        ({"expect_0": file, "expect_1": file}, "outputs of the method: 1, files given: 2"),
    ):
        verdict = judge(run_program(TAKEN, execute(**fields), program=FORMS, method="factor"))
        assert verdict.error is not None
        assert (verdict.outcome, verdict.cause, verdict.error.message) == (
            "error",
            "config",
            message,
        )
