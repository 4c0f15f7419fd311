"""Inputs and outputs of ExecuTorch's programs, in each form, against what numpy computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.diagnosis.verdict import judge
from harness.probe.plan import Step
from harness.probe.plan_runner import ProbeRun
from tests.integration.probe.test_executorch import TAKEN, RunProgram, execute, run_program

__all__ = ["run_program"]  # a fixture

PROGRAMS = Path(__file__).parents[2] / "executorch"
LLAMA, FORMS = PROGRAMS / "stories-like.pte", PROGRAMS / "forms.pte"
X = np.arange(1, 5, dtype=np.float32)


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
def test_a_hybrid_llama_takes_every_input_and_gives_every_output(
    run_program: RunProgram, tmp_path: Path, method: str, tokens: int
) -> None:
    inputs = llama_inputs(tokens)
    fields = {}
    for number, values in enumerate(inputs):
        fields[f"input.{number}"] = str(tmp_path / f"input.{number}.raw")
        values.tofile(fields[f"input.{number}"])
    outputs = [tmp_path / f"output.{number}.raw" for number in range(5)]
    opening = (Step("executorch-device"), Step("executorch-context", {"context": "0"}))

    def run(**files: str) -> ProbeRun:
        step = Step("executorch-run", fields | {"repeat": "3"} | files)
        return run_program(TAKEN, *opening, step, step, program=LLAMA, method=method)

    saved = run(**{f"save.{number}": str(path) for number, path in enumerate(outputs)})
    assert judge(saved).outcome == "passed"
    assert [path.stat().st_size for path in outputs] == [tokens * 64 * 4, *[tokens * 64] * 4]
    assert all(np.fromfile(path, np.float32).any() for path in outputs)
    expected = {f"expect.{number}": str(path) for number, path in enumerate(outputs)}
    compared = run(**expected).transcript.steps[3].data["outputs"]
    assert [comparison["max_abs"] for comparison in compared] == [0] * 5
    for number, values in enumerate(inputs):  # each of them makes a difference
        other = values.copy()
        other.flat[0] += 1 if other.dtype == np.int32 and other.flat[0] == 0 else -1
        other.tofile(tmp_path / "other.raw")
        error = judge(run(**expected | {f"input.{number}": str(tmp_path / "other.raw")})).error
        assert error is not None, number
        assert error.step == 3


@pytest.mark.parametrize(
    ("method", "inputs", "outputs"),
    [
        # whole numbers have 8 bytes, truth values one
        ("numbers", [X], [np.int64(7), X + 1, np.float64(2.5), X * 2, np.True_]),
        ("same", [X], [X, X + 1]),
        ("constant", [X], [np.arange(4, dtype=np.float32), X + np.arange(4, dtype=np.float32)]),
        ("rows", [np.arange(32, dtype=np.float32)], [np.arange(32, dtype=np.float32) * 2]),
        ("factor", [X, X + 1], [X * 4 + 1]),
    ],
)
def test_outputs_of_every_form_are_compared(
    run_program: RunProgram,
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
    for number, output in enumerate(outputs):  # each of them is looked at
        other = bytearray(output.tobytes())
        other[-1] ^= 1
        (tmp_path / "other.raw").write_bytes(other)
        step = Step("executorch-run", fields | {f"expect.{number}": str(tmp_path / "other.raw")})
        error = judge(run_program(TAKEN, step, program=FORMS, method=method)).error
        assert error is not None
        assert error.message.startswith(f"run 1: output {number} has 1 of")


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
    X.tofile(tmp_path / "x.raw")
    file = str(tmp_path / "x.raw")
    for fields in ({"input_0": file}, {"expect_0": file, "expect_1": file}):
        verdict = judge(run_program(TAKEN, execute(**fields), program=FORMS, method="factor"))
        assert (verdict.outcome, verdict.cause) == ("error", "config")
        assert verdict.error is not None
        assert "of the method: " in verdict.error.message
