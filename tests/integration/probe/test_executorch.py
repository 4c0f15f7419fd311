"""The probe with ExecuTorch in it, on the real libraries: its steps, and tensors of every form."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.bench.provisioner import Provisioner
from harness.core.state_folders import cache_root
from harness.diagnosis.verdict import judge
from harness.engines.executorch import wheel_files
from harness.probe.plan import Plan, Settings, Step
from harness.probe.plan_runner import ProbeRun, run_plan_locally
from harness.results.probe_figures import measure
from harness.runtimes.catalog import Catalog
from tests.integration.conftest import RuntimeFor
from tests.needed import need

PROGRAM = Path(__file__).parents[2] / "field/executorch-3-contexts.pte"
PROGRAMS = Path(__file__).parents[2] / "executorch"
LLAMA, FORMS = PROGRAMS / "stories-like.pte", PROGRAMS / "forms.pte"
X = np.arange(1, 5, dtype=np.float32)
TAKEN, REFUSED = "2.49.40", "2.51.0"
DEFAULTS = Settings()
BLOB = struct.pack("<I", 0x5678ABCD)

RunProgram = Callable[..., ProbeRun]


@pytest.fixture(scope="module")
def run_program(catalog: Catalog, runtime_for: RuntimeFor) -> RunProgram:
    """Runs a program's steps in the probe with ExecuTorch, on the libraries of a version."""
    need("c++", "g++", "clang++")
    provisioner = Provisioner(catalog, cache_root())
    files = wheel_files(provisioner, "linux-x64")
    folder = files["libexecutorch.so"].parent

    def run(
        version: str,
        *steps: Step,
        program: Path = PROGRAM,
        method: str = "forward",
        settings: Settings = DEFAULTS,
    ) -> ProbeRun:
        runtime = runtime_for(version)
        folders = [*(runtime.root / folder for folder in runtime.library_dirs), folder]
        first = Step("executorch-program", {"file": str(program), "method": method})
        last = (Step("cleanup"), Step("executorch-free"))
        return run_plan_locally(
            files["qnn-probe"],
            Plan((first, *steps, *last), settings),
            env={"LD_LIBRARY_PATH": ":".join(map(str, folders))},
            timeout_s=120,
        )

    return run


def loading(contexts: int) -> tuple[Step, ...]:
    device = Step("executorch-device")
    each = (Step("executorch-context", {"context": str(number)}) for number in range(contexts))
    return device, *each


def execute(**fields: str) -> Step:
    return Step("executorch-run", {key.replace("_", "."): value for key, value in fields.items()})


def test_device_and_contexts_are_steps(run_program: RunProgram, tmp_path: Path) -> None:
    saved = tmp_path / "output.raw"
    info = Settings(log_level="info")
    completed = run_program(
        TAKEN, *loading(3), execute(repeat="3", save_0=str(saved)), settings=info
    )
    assert judge(completed).explanation() == "passed"
    program, device, *contexts, execution, _, freed = completed.transcript.steps
    assert program.data == {"delegates": 3, "inputs": 1, "outputs": 1}
    assert [step.context for step in contexts] == [0, 1, 2]
    # each line belongs to the step it tells of
    assert "Creating new backend bundle." in [line.text for line in device.logs]
    for step in contexts:
        texts = [line.text for line in step.logs]
        assert sum(text.startswith("Running level") for text in texts) == 1, texts
    assert [line.text for line in freed.logs].count("Destroy Qnn context") == 3
    figures = measure(completed.transcript)
    assert (figures["loaded"], figures["executed"]) == (3, 1)
    assert execution.data["runs"] == 3
    assert np.isfinite(np.fromfile(saved, dtype=np.float32)).all()
    # the same again: against what came out, with inputs from a file, and with wrong ones
    inputs = tmp_path / "input.raw"
    ((np.arange(16) * 37 % 251 - 125) / 125).astype(np.float32).tofile(inputs)
    same = execute(input_0=str(inputs), expect_0=str(saved))
    assert judge(run_program(TAKEN, *loading(3), same)).outcome == "passed"
    np.zeros(16, dtype=np.float32).tofile(inputs)
    other = judge(run_program(TAKEN, *loading(3), same))
    assert (other.outcome, other.cause) == ("failed", "target")
    assert other.error is not None
    assert other.error.message.startswith(
        "run 1: output 0 has 45 of 256 elements that are not what is expected"
    )


def test_a_plan_need_not_name_the_contexts(run_program: RunProgram) -> None:
    assert judge(run_program(TAKEN, execute())).outcome == "passed"
    assert judge(run_program(TAKEN, *loading(1), execute())).outcome == "passed"
    half = run_program(TAKEN, *loading(2))  # what was begun is brought to its end and freed
    assert judge(half).outcome == "passed"
    more = run_program(TAKEN, *loading(4)).transcript.first_failure
    assert more is not None
    assert (more.context, more.error) == (3, "plan")
    assert more.message == "the method has come to context 3 of 3, and is loaded"
    none = run_program(TAKEN, Step("executorch-device"), Step("executorch-device"))
    assert none.transcript.first_failure is not None
    assert none.transcript.first_failure.message == "the method is being loaded already"


def test_a_version_that_wants_another_device_configuration(run_program: RunProgram) -> None:
    verdict = judge(run_program(REFUSED, *loading(3), execute()))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    error = verdict.error
    assert error is not None
    assert (error.step, error.context) == (1, None)
    assert (error.api, error.code) == ("QnnDevice_create", 14001)
    assert "unknown custom config socModel 0" in error.message


def changed(tmp_path: Path, edit: Callable[[bytearray, int], None]) -> Path:
    """The program with something changed in its second context, which begins at a byte."""
    content = bytearray(PROGRAM.read_bytes())
    second = content.index(BLOB, content.index(BLOB) + 1) + 256
    edit(content, second)
    path = tmp_path / "changed.pte"
    path.write_bytes(content)
    return path


def test_a_context_that_fails_is_named(run_program: RunProgram, tmp_path: Path) -> None:
    def head(content: bytearray, place: int) -> None:
        content[place + 40 : place + 44] = b"\xff" * 4

    def tail(content: bytearray, place: int) -> None:
        size = int.from_bytes(content[place - 244 : place - 236], "little")
        content[place + size - 600 : place + size - 100] = b"\xff" * 500

    for edit, api, code in (
        (head, "QnnSystemContext_getBinaryInfo", 30010),
        (tail, "QnnContext_createFromBinary", 5005),
    ):
        completed = run_program(TAKEN, *loading(3), execute(), program=changed(tmp_path, edit))
        error = judge(completed).error
        assert error is not None
        assert (error.api, error.code, error.context) == (api, code, 1)
        assert error.diagnosis is not None
        assert error.diagnosis.id == "damaged-binary"
        assert measure(completed.transcript)["loaded"] == 1


def test_what_is_no_program(run_program: RunProgram, tmp_path: Path) -> None:
    path = tmp_path / "none.pte"
    path.write_bytes(b"hello" * 100)
    error = judge(run_program(TAKEN, *loading(3), program=path)).error
    assert error is not None
    assert (error.step, error.api, error.code) == (0, "Module::load", None)
    assert error.message.startswith("Program identifier 'ohel' != expected 'ET12'")


def llama_run(inputs: Path, outputs: Path, tokens: int, context: int = 16) -> Step:
    """Runs a method of LLAMA: writes its inputs to one folder, and saves its outputs in another.

    They are tokens, mask, positions, and caches of keys and of values that are not empty.
    """
    random = np.random.default_rng(5)
    old = context - tokens
    mask = np.triu(np.full((tokens, context), -255.0, np.float32), old + 1)
    keys = [random.normal(size=(1, 2, 8, old)).astype(np.float32) for _ in range(2)]
    values = [random.normal(size=(1, 2, old, 8)).astype(np.float32) for _ in range(2)]
    ids = random.integers(0, 64, tokens, np.int32)
    fields = {f"save.{number}": str(outputs / f"output.{number}.raw") for number in range(5)}
    arrays = [ids, mask, np.arange(old, context, dtype=np.int32), *keys, *values]
    for number, array in enumerate(arrays):
        fields[f"input.{number}"] = str(inputs / f"input.{number}.raw")
        array.tofile(fields[f"input.{number}"])
    return Step("executorch-run", fields)


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
