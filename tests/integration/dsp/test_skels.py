"""Real skels of several versions and Hexagons: alone in the loader, and behind real libraries."""

import re
from pathlib import Path

import pytest

from harness.dsp.emulator import DSP_ARCHS
from harness.dsp.simulated_dsp import DspLimits, DspPrograms
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.dsp.board import DspBoard, executes, frees, loads
from tests.integration.dsp.conftest import fastrpc_over

VERSIONS = ("2.47.0", "2.48.40", "2.51.0")
INVOKE = rb"\w+_skel_handle_invoke(?=\0)"
CONFIGURE = 2
"""A method that a stub calls first, with 12 bytes and the domain's name."""

SOCS = {68: ("SA8295P", 460), 73: ("QCS8550", 603), 75: ("SM8650", 557), 79: ("SM8750", 618)}
"""One for each arch: these libraries know none with v69."""

SKELS = [(version, arch) for version in VERSIONS for arch in DSP_ARCHS]


def skel_of(runtime_for: RuntimeFor, version: str, arch: int) -> Path:
    """The skel of a wheel for arm64."""
    files = runtime_for(version, "linux-arm64").files
    return next(file.path for file in files if file.path.name == f"libQnnHtpV{arch}Skel.so")


def uri(skel: Path) -> str:
    """The URI by which the stub of its own version opens it."""
    (invoke,) = {*re.findall(INVOKE, skel.read_bytes())}
    return f"file:///{skel.name}?{invoke.decode()}&_modver=1.0&_dom=cdsp"


@pytest.mark.parametrize(("version", "arch"), SKELS)
def test_a_skel_opens_and_answers(
    runtime_for: RuntimeFor, programs: DspPrograms, tmp_path: Path, version: str, arch: int
) -> None:
    skel = skel_of(runtime_for, version, arch)
    with fastrpc_over(tmp_path, programs, skel.parent, arch=arch) as rpc:
        error, handle = rpc.open(uri(skel))
        assert error == 0, rpc.log()
        assert rpc.call(handle, CONFIGURE, bytes(12), b"cdsp\0", sizes=[8, 0])[0] == 0
        assert (rpc.close(handle), rpc.said("kernel", "emulator")) == (0, [])
        assert "nothing here gives" not in rpc.log(), "all imports are found as it is loaded"


@pytest.mark.needs("qemu-aarch64")
@pytest.mark.needs("aarch64-linux-gnu-gcc")
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
