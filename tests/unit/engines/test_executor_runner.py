"""A user's build of ExecuTorch: what is taken of it, how it is called, what came out of it."""

import struct
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from harness.containers.artefact import Tensor
from harness.core.errors import ConfigError
from harness.diagnosis.runner_log import OutputLine, runner_transcript
from harness.diagnosis.verdict import judge
from harness.engines.executorch import Program, RunnerCall, with_outputs
from harness.engines.executorch_files import RUNNER, runner_files
from harness.probe.plan_runner import ProbeRun
from harness.results.record import executions, outputs_of
from tests.snapshots import Snapshot
from tests.unit.runtimes.elf_files import elf_file

X = Tensor("output_0", 8, "float32")
PLAN = Program(Path("m.pte"), "forward", ()).plan("/m.pte", ["/i"], [], tolerance=0, repeat=1)


def built(folder: Path) -> Path:
    """A build for arm64, as CMake leaves it."""
    for name in ("examples/qualcomm/executor_runner", "backends/qualcomm", "lib"):
        (folder / name).mkdir(parents=True)
    runner = folder / "examples/qualcomm/executor_runner" / RUNNER
    runner.write_bytes(elf_file("aarch64"))
    (folder / "backends/qualcomm/libqnn_executorch_backend.so").write_bytes(b"a")
    (folder / "lib/libother.so").write_bytes(b"b")
    return folder


def test_a_build_has_a_runner_and_libraries_wherever_cmake_leaves_them(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    folder = built(tmp_path / "build-android")
    files = runner_files(folder, "android-arm64")
    assert list(files) == [RUNNER, "libother.so", "libqnn_executorch_backend.so"]
    assert all(path.is_relative_to(folder) for path in files.values())
    with snapshot.raises(ConfigError):
        runner_files(folder, "linux-x64")
    for damage in (
        lambda: files[RUNNER].write_bytes(b"#!/bin/sh"),
        files["libqnn_executorch_backend.so"].unlink,
        files[RUNNER].unlink,
    ):
        damage()
        with snapshot.raises(ConfigError):
            runner_files(folder, "android-arm64")


def test_it_is_called_with_its_own_libraries_first() -> None:
    environment = {"LD_LIBRARY_PATH": "/qnn", "ADSP_LIBRARY_PATH": "/qnn;/dsp", "OTHER": "a b"}
    call = RunnerCall("/b/run", "/p/m.pte", ("/i/0", "/i/1"), "/s x", environment, method=2, mode=8)
    assert call.input_list() == b"/i/0 /i/1\n/i/0 /i/1\n"
    assert call.script() == (
        "cd '/s x'&&mkdir outputs&&cat >input_list.txt||exit 97;"
        "export LD_LIBRARY_PATH=/b:/qnn;export ADSP_LIBRARY_PATH='/b;/qnn;/dsp';"
        "export OTHER='a b';"
        'read -r up rest </proc/uptime;echo "qnn-harness-started $$ $up";'
        "exec /b/run --model_path /p/m.pte --output_folder_path '/s x/outputs' "
        "--input_list_path '/s x/input_list.txt' --method_index 2 --htp_performance_mode 8 2>&1"
    )
    assert RunnerCall("/b/run", "/p", (), "/s", {}).input_list() == b""


def ran(first: bytes | None, second: bytes | None, expected: list[bytes]) -> ProbeRun:
    heard = [OutputLine("qnn-harness-started 1 2.0", 0)]
    transcript = runner_transcript(PLAN, heard, 0)
    run = ProbeRun(PLAN, transcript, 0, None, False, False, b"", b"", 1.0)
    return with_outputs(run, [[first], [second]], [X], expected, 0.5)


def real(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def test_outputs_are_compared_with_each_other_and_with_what_is_expected() -> None:
    first_output = real(1, 2)
    run = ran(first_output, first_output, [])
    assert judge(run).outcome == "passed"
    runs = list(executions(PLAN, run.transcript))
    assert (outputs_of(runs), runs[0].digests) == ("agreement", (crc32(first_output),))
    compared = ran(first_output, first_output, [real(1, 2.5)])
    assert outputs_of(list(executions(PLAN, compared.transcript))) == "reference"
    nan = real(1, np.nan)
    assert judge(ran(nan, nan, [nan])).outcome == "passed"


@pytest.mark.parametrize(
    ("first", "expected"),
    [(real(1, 2), [real(1, 3)]), (real(1, np.nan), [real(1, 3)]), (None, []), (b"1", [])],
    ids=["off", "NaN", "nothing", "short"],
)
def test_outputs_that_are_wrong_fail_the_target(
    first: bytes | None, expected: list[bytes], snapshot: Snapshot
) -> None:
    verdict = judge(ran(first, real(1, 2), expected))
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    assert verdict.error.message == snapshot
