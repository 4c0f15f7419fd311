"""Fixtures for tests of a DSP: the emulator, the loader, a skel, and FastRPC in front of them."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.core.state_folders import BOARDS, cache_root
from harness.dsp.emulator import build_loader, find_qemu
from harness.dsp.simulated_dsp import DspLimits, DspPrograms
from tests.integration.dsp.fastrpc import FastRpc
from tests.needed import DSP, need
from tests.stand_in.skel_build import build_skel
from tests.waiting import wait_for

MakeRpc = Callable[..., FastRpc]


@pytest.fixture(scope="session")
def programs() -> DspPrograms:
    """The emulator of this computer, and the loader, built if it is new."""
    need(DSP)
    cache = cache_root() / BOARDS
    return DspPrograms(find_qemu(cache).path, build_loader(cache))


@pytest.fixture(scope="session")
def skels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tests' own skel."""
    need(DSP)
    return build_skel(tmp_path_factory.mktemp("skel"), cache_root() / BOARDS / "zig").parent


@contextlib.contextmanager
def fastrpc_over(
    folder: Path, programs: DspPrograms, skels: Path, **limits: int
) -> Iterator[FastRpc]:
    """FastRPC to a DSP of these limits, which finds its skels in a folder."""
    rpc = FastRpc(folder, programs, DspLimits(**limits))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QNN_DSP", str(rpc.dsp))
        patch.setenv("ADSP_LIBRARY_PATH", f"/nowhere;{skels}")
        patch.delenv("DSP_LIBRARY_PATH", raising=False)
        yield rpc
        for process in rpc.processes():
            with contextlib.suppress(ProcessLookupError):  # it may be ending
                os.kill(process, signal.SIGKILL)
            # libcdsprpc, in this process, tells of its end in the log of whoever calls it then
            wait_for(lambda folder=Path(f"/proc/{process}"): not folder.exists())


@pytest.fixture
def fastrpc(tmp_path: Path, programs: DspPrograms, skels: Path) -> Iterator[MakeRpc]:
    """fastrpc(arch=73, ...): FastRPC to a DSP of these limits with the tests' own skel."""
    with contextlib.ExitStack() as ends:
        yield lambda **limits: ends.enter_context(fastrpc_over(tmp_path, programs, skels, **limits))
