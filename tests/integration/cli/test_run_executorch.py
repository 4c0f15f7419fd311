"""`qnn-harness run --engine executorch`: programs as ExecuTorch's own tools make them."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.probe.test_executorch import (
    LLAMA,
    PROGRAM,
    RunProgram,
    llama_run,
    run_program,
)

__all__ = ["run_program"]  # a fixture
TOKENS = {"kv_forward": 1, "prefill_forward": 8}


@pytest.mark.slow
def test_a_hybrid_llama_runs_as_it_is_and_gives_the_same_again(
    lab: DeviceRuns, run_program: RunProgram, tmp_path: Path
) -> None:
    for method, tokens in TOKENS.items():
        inputs, outputs = (
            tmp_path / f"{kind}/{LLAMA.name}/{method}" for kind in ("inputs", "outputs")
        )
        inputs.mkdir(parents=True)
        outputs.mkdir(parents=True)
        step = llama_run(inputs, outputs, tokens)
        completed = run_program("2.49.40", step, program=LLAMA, method=method)
        assert completed.transcript.first_failure is None
    arguments = (f"--inputs={tmp_path}/inputs", f"--expected={tmp_path}/outputs")
    code, stderr, records = lab.run_files(LLAMA, "--engine=executorch", *arguments)
    assert code == 0, stderr
    assert [record["axes"]["workload"] for record in records] == [
        f"{LLAMA.name}-{record}" for record in TOKENS
    ]
    for record in records:
        assert (record["outcome"], record["axes"]["qnn"]) == ("passed", "2.49.40")
        assert (record["outputs"], record["measurements"]["loaded"]) == ("reference", 1)
    # each method has its own folder: those of the other one are no files for it
    (method, other) = TOKENS
    wrong = f"--expected={tmp_path}/outputs/{LLAMA.name}/{other}"
    code, stderr, records = lab.run_files(LLAMA, "--engine=executorch", f"--graph={method}", wrong)
    assert (code, records) == (2, []), stderr


@pytest.mark.slow
def test_how_right_a_program_is_as_the_first_page_asks(lab: DeviceRuns) -> None:
    page = (ROOT / "docs/tutorial/first-model.md").read_text()
    (command,) = re.findall(r"^qnn-harness run (model.pte --engine executorch .*)$", page, re.M)
    shutil.copyfile(PROGRAM, lab.folder / "model.pte")
    for name, values in (("in", np.zeros((1, 16))), ("out", np.zeros((16, 16)))):
        (lab.folder / name).mkdir()
        np.save(lab.folder / name / "0.npy", values.astype(np.float32))
    wrong = command.partition(" --limit")[0].split()
    code, stderr, (record,) = lab.run_files(*wrong)
    assert (code, record["outcome"], record["outputs"]) == (1, "failed", "reference"), stderr
    assert record["error"]["diagnosis"]["id"] == "wrong-outputs"
    # that its contexts run alone would blame ExecuTorch, and nobody said that files are right
    assert "replay" not in record["measurements"]
    assert "conclusion" not in record["measurements"]
    (right,) = (lab.reports / "latest/outputs").glob("*-1024.raw")
    np.save(lab.folder / "out/0.npy", np.fromfile(right, np.float32).reshape(16, 16))
    code, stderr, (two,) = lab.run_files(*command.split())
    assert (code, two["outcome"], two["outputs"]) == (0, "passed", "reference"), stderr
