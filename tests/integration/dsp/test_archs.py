"""The real arm64 libraries of several versions with the skels of several Hexagons."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.dsp.dsp import DspLimits, DspPrograms
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.dsp.board import DspBoard, executes, frees, loads

pytestmark = [
    pytest.mark.needs("qemu-aarch64"),
    pytest.mark.needs("aarch64-linux-gnu-gcc"),
]
SOCS = {68: ("SA8295P", 460), 73: ("QCS8550", 603), 75: ("SM8650", 557), 79: ("SM8750", 618)}
"""One for each arch: these libraries know none with v69."""


@pytest.mark.parametrize(
    ("version", "arch"),
    [("2.51.0", 68), ("2.51.0", 75), ("2.51.0", 79), ("2.48.40", 73), ("2.47.0", 79)],
)
def test_a_graph_of_8_bits_executes(
    runtime_for: RuntimeFor,
    context_for: ContextFor,
    programs: DspPrograms,
    tmp_path: Path,
    version: str,
    arch: int,
) -> None:
    files = runtime_for(version, "linux-arm64").files
    libraries = [file.path for file in files if file.path.name.startswith("libQnn")]
    board = DspBoard(libraries, tmp_path / "board", programs, DspLimits(arch=arch), SOCS[arch])
    context = context_for("io-heavy-2mb", version, arch)
    outcome = board.run(loads([context]) + executes(0, context, "raw"), frees(1))
    assert outcome.codes("context-load") == outcome.codes("device-free") == [0]
    assert outcome.codes("io-run") == [0]
    (output,) = next(
        step.data["outputs"] for step in outcome.run.transcript.steps if step.verb == "io-run"
    )
    assert (output["elements"], output["max_abs"]) == (1_000_000, 0)
    assert outcome.said == ()
    assert f"libQnnHtpV{arch}Skel.so: loaded" in (board.dsp / "log").read_text()
