"""Plans and files of a .pte for ExecuTorch, and the result of replaying its contexts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.containers.artefact import ArtefactError, FileBytes, Piece
from harness.containers.pte import method_tensors
from harness.core.errors import ConfigError
from harness.diagnosis.error import Diagnosis, ErrorRecord, Outcome
from harness.diagnosis.verdict import Verdict
from harness.engines.executorch import Program, ProgramFault, judge_replay, open_program

FIELD = Path(__file__).parents[2] / "field"
PROGRAM = FIELD / "executorch-3-contexts.pte"


def ended(outcome: Outcome, context: int | None = None) -> Verdict:
    if outcome == "passed":
        return Verdict("passed")
    error = ErrorRecord.of(api="Qnn", code=1002, message="no room for 7", context=context)
    return Verdict(outcome, "target", error)


@pytest.mark.parametrize(
    ("together", "alone", "fault", "context", "message"),
    [
        (ended("passed"), None, "undecided", None, "does not tell whether ExecuTorch fails"),
        (ended("failed", 5), ended("failed", 0), "context", 5, "of context 5: "),
        (
            ended("failed", 5),
            ended("hung", 0),
            "context",
            5,
            "alone, too, but otherwise: hung Qnn 1",
        ),
        (ended("failed", 5), ended("passed"), "room", 5, "context 5 fails beside the others"),
        (ended("hung", 5), None, "room", 5, "5 fails beside the others, and not alone, but other"),
        (ended("failed"), None, "library", None, "of the library: "),
        (ended("unsupported"), None, "undecided", None, "done with ExecuTorch only"),
    ],
)
def test_what_a_failure_is_of(
    together: Verdict, alone: Verdict | None, fault: ProgramFault, context: int | None, message: str
) -> None:
    replay = judge_replay(ended("failed"), together, alone)
    assert (replay.fault, replay.context) == (fault, context)
    assert message in str(replay)
    signature = None if together.error is None else "Qnn|1002|no room for <n>"
    assert replay.error == signature


def with_executorch(outcome: Outcome, api: str, code: int | None, known: str = "x") -> Verdict:
    error = ErrorRecord.of(api=api, code=code, message="")
    diagnosis = Diagnosis(id=known, confidence="known", words="...")
    return Verdict(outcome, "target", error.model_copy(update={"diagnosis": diagnosis}))


@pytest.mark.parametrize(
    ("program", "alone", "message"),
    [
        (
            with_executorch("failed", "QnnDevice_create", 14001),
            with_executorch("failed", "QnnContext_createFromBinary", 5000),
            "without ExecuTorch context 0 fails all alone, too, but otherwise: "
            "failed QnnContext_createFromBinary 5000 QNN_CONTEXT_ERROR_INVALID_ARGUMENT",
        ),
        (
            with_executorch("failed", "QnnContext_createFromBinary", 1002),
            with_executorch("failed", "QnnContext_createFromBinary", 1002),
            "the failure is of context 0: without ExecuTorch context 0 fails all alone, too",
        ),
        (
            with_executorch("crashed", "Module::load_method", None),
            with_executorch("crashed", "QnnContext_createFromBinary", None),
            "the failure is of context 0: without ExecuTorch context 0 fails all alone, too",
        ),
    ],
)
def test_a_context_that_fails_otherwise_alone_is_not_blamed(
    program: Verdict, alone: Verdict, message: str
) -> None:
    assert str(judge_replay(program, ended("failed", 0), alone)) == message


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        # it ended otherwise than QNN's calls, and its contexts run: still, much else may be it
        (with_executorch("failed", "QnnGraph_execute", 6004, "tensor-mismatch"), "undecided"),
        (with_executorch("failed", "QnnDevice_create", 14001, "invalid-config"), "undecided"),
        (with_executorch("failed", "Module::execute", 0, "wrong-outputs"), "undecided"),
        (with_executorch("failed", "Module::execute", 1), "undecided"),
        (with_executorch("crashed", "Module::load_method", None), "undecided"),
        (with_executorch("hung", "Module::load_method", None), "undecided"),
        (Verdict("failed", "target"), "undecided"),
        (with_executorch("failed", "QnnDevice_create", 14001, "executorch-version"), "versions"),
        (with_executorch("failed", "Module::load_method", 32), "executorch"),
    ],
)
def test_that_contexts_run_alone_does_not_blame_executorch(
    program: Verdict, fault: ProgramFault
) -> None:
    assert judge_replay(program, ended("passed"), None).fault == fault
    # where they do not, it is not asked
    assert judge_replay(program, ended("failed", 5), ended("passed")).fault == "room"


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


def test_what_is_no_program_of_executorchs() -> None:
    with pytest.raises(ConfigError, match=r"'backward'; --graph, .* .valid: forward."):
        open_program(PROGRAM, "backward")
    with pytest.raises(ConfigError, match=r"ExecuTorch runs a \.pte, and this is: tflite"):
        open_program(FIELD / "simple_model_qualcomm_sm8650_precompiled.tflite", "forward")
    dlc = Program(PROGRAM, "forward", (Piece(PROGRAM, 0, 9, "forward/0", "dlc"),))
    with pytest.raises(ConfigError, match=r"delegate 0 .forward/0. holds no context but: dlc"):
        dlc.sources()
    assert not dlc.holds_contexts
    assert open_program(PROGRAM, "forward").holds_contexts


def test_tensors_of_a_method_are_known_without_running_it(tmp_path: Path) -> None:
    program = open_program(PROGRAM, "forward")
    assert program.inputs is not None
    assert program.outputs is not None
    assert [str(tensor) for tensor in (*program.inputs, *program.outputs)] == [
        "input_0 (64 bytes of float32)",
        "output_0 (1024 bytes of float32)",
    ]
    with FileBytes(PROGRAM) as data, pytest.raises(ArtefactError, match="no method 'backward'"):
        method_tensors(data, "backward")
    values = np.arange(16, dtype=np.float32)
    np.save(tmp_path / "x.npy", values)
    (raw,) = program.tensor_files("inputs", tmp_path)
    assert raw.read_bytes() == values.tobytes()
    assert program.tensor_files("inputs", None) == ()
    np.save(tmp_path / "x.npy", values.astype(np.float64))
    with pytest.raises(ConfigError, match=r"float64, .16,.: .*, and input_0 .64 bytes of float32"):
        program.tensor_files("inputs", tmp_path)


def test_a_program_whose_tensors_are_not_known_takes_raw_files(tmp_path: Path) -> None:
    for name in ("b10.raw", "b9.raw"):
        (tmp_path / name).write_bytes(b"1")
    program = Program(PROGRAM, "forward", ())
    assert [tensor.name for tensor in program.tensor_files("inputs", tmp_path)] == [
        "b9.raw",
        "b10.raw",
    ]
    np.save(tmp_path / "c.npy", np.zeros(1))
    with pytest.raises(ConfigError, match=r"expected: .*give raw files, no .npy"):
        program.tensor_files("expected", tmp_path)


def test_damaged_tensors_of_a_method_are_told_or_not_known(tmp_path: Path) -> None:
    content = PROGRAM.read_bytes()
    path = tmp_path / "changed.pte"
    for offset in range(0, 2400, 3):
        changed = bytearray(content)
        changed[offset] ^= 0xFF
        path.write_bytes(changed)
        with FileBytes(path) as data:
            try:
                inputs, outputs = method_tensors(data, "forward")
            except ArtefactError:
                continue
        assert all(tensor is None or tensor.size >= 0 for tensor in (*inputs, *outputs))
