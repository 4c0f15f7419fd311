"""Plans and files of a .pte for ExecuTorch."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest

from harness.containers.artefact import ArtefactError, FileBytes, Piece
from harness.containers.pte import method_tensors
from harness.core.errors import ConfigError
from harness.engines.executorch import ExecuTorch, Program, open_program, performance_mode
from harness.runtimes.preflight import PreflightInput, TargetFacts
from tests.snapshots import Snapshot

FIELD = Path(__file__).parents[2] / "field"
PROGRAM = FIELD / "executorch-3-contexts.pte"


def test_a_program_has_the_contexts_of_its_method() -> None:
    program = open_program(PROGRAM, "forward")
    assert [piece.origin for piece in program.contexts] == ["forward/0", "forward/1", "forward/2"]
    assert [str(source) for source in program.sources()] == [
        f"{PROGRAM.name}#{n}" for n in range(3)
    ]
    plan = program.plan("/d/p.pte", ["/d/i"], [], tolerance=0.5, repeat=2)
    assert [step.line() for step in plan.steps] == [
        "executorch-program file=/d/p.pte method=forward",
        "executorch-device",
        "executorch-context context=0",
        "executorch-context context=1",
        "executorch-context context=2",
        "executorch-run tolerance=0.5 repeat=2 input.0=/d/i",
        "executorch-run tolerance=0.5 repeat=1 input.0=/d/i",
        "cleanup",
        "executorch-free",
    ]


def test_a_power_profile_is_a_performance_mode_of_executorch() -> None:
    program = open_program(PROGRAM, "forward")
    mode = performance_mode("burst")
    plan = program.plan("/d/p.pte", ["/d/i"], [], tolerance=0.5, repeat=2, mode=mode)
    assert plan.steps[1].line() == "executorch-device performance_mode=2"
    assert performance_mode(None) is None
    with pytest.raises(ConfigError, match=r"^--power: ExecuTorch has no performance mode"):
        performance_mode("extreme_power_saver")


def test_the_wheel_takes_one_qnn_only(snapshot: Snapshot) -> None:
    subject = PreflightInput((), TargetFacts("linux-arm64"), qnn_version="2.51.0")
    (found,) = ExecuTorch().findings(subject, None)
    assert (found.code, found.severity) == ("executorch-device", "error")
    assert f"{found.explanation} {found.fix}" == snapshot
    assert list(ExecuTorch().findings(subject, Path("build"))) == []
    assert list(ExecuTorch().findings(replace(subject, qnn_version="2.49.40"), None)) == []
    assert list(ExecuTorch().findings(replace(subject, backend="gpu"), None)) == []


def test_a_build_runs_with_the_newest_qnn_that_made_a_context() -> None:
    assert ExecuTorch().fitting_qnn(None, tuple) == (">=2.49,<2.50", ANY)
    newest = ExecuTorch().fitting_qnn(Path("build"), lambda: ["2.9.0", "2.51.0", "2.50.40"])
    assert newest == ("2.51.0", ANY)
    assert ExecuTorch().fitting_qnn(Path("build"), tuple) is None


def test_what_is_no_program_of_executorchs(snapshot: Snapshot) -> None:
    snapshot.hide(FIELD, "FIELD")
    with snapshot.raises(ConfigError):
        open_program(PROGRAM, "backward")
    with snapshot.raises(ConfigError):
        open_program(FIELD / "simple_model_qualcomm_sm8650_precompiled.tflite", "forward")
    dlc = Program(PROGRAM, "forward", (Piece(PROGRAM, 0, 9, "forward/0", "dlc"),))
    assert dlc.sources() == []
    # no file can hold its tensors, which are not known
    assert dlc.tensor_files("inputs", None) == ()
    for kind, files, generate in (("inputs", None, True), ("expected", FIELD, False)):
        with pytest.raises(ConfigError):
            dlc.tensor_files(kind, files, generate=generate)


def test_tensors_of_a_method_are_known_without_running_it(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    program = open_program(PROGRAM, "forward")
    assert [str(tensor) for tensor in (*program.inputs, *program.outputs)] == [
        "input_0 (float32 [1, 16], 64 bytes)",
        "output_0 (float32 [16, 16], 1024 bytes)",
    ]
    with FileBytes(PROGRAM) as data, pytest.raises(ArtefactError):
        method_tensors(data, "backward")
    snapshot.hide(FIELD, "FIELD")
    values = np.arange(16, dtype=np.float32)
    np.save(tmp_path / "0.npy", values)
    (raw,) = program.tensor_files("inputs", tmp_path)
    assert raw.read_bytes() == values.tobytes()
    assert program.tensor_files("inputs", None) == ()
    np.save(tmp_path / "0.npy", values.astype(np.float64))
    with snapshot.raises(ConfigError):
        program.tensor_files("inputs", tmp_path)


def test_damaged_tensors_of_a_method_are_told_or_not_known(tmp_path: Path) -> None:
    content = PROGRAM.read_bytes()
    path = tmp_path / "changed.pte"
    for offset in range(0, 2400, 13):
        changed = bytearray(content)
        changed[offset] ^= 0xFF
        path.write_bytes(changed)
        with FileBytes(path) as data:
            try:
                inputs, outputs = method_tensors(data, "forward")
            except ArtefactError:
                continue
        assert all(tensor is None or tensor.size >= 0 for tensor in (*inputs, *outputs))
