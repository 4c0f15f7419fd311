"""Fixtures for tests of a DSP's processes: the emulator, the loader, a process with a skel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.core.cache import BOARDS, cache_root
from harness.dsp.dsp import DspLimits, DspPrograms
from harness.dsp.emulator import build_loader, find_qemu
from tests.integration.dsp.dsp_process import DspProcess
from tests.needed import DSP, need

BeginDsp = Callable[..., DspProcess]


@pytest.fixture(scope="session")
def programs() -> DspPrograms:
    """The emulator of this computer, and the loader, built if it is new."""
    need(DSP)
    cache = cache_root() / BOARDS
    return DspPrograms(find_qemu(cache).path, build_loader(cache))


@pytest.fixture
def begin(tmp_path: Path, programs: DspPrograms) -> Iterator[BeginDsp]:
    """begin(skel, arch=73, ...): a process with this skel, which ends with the test."""
    with ExitStack() as processes:

        def make(skel: Path, **limits: int) -> DspProcess:
            folder = tmp_path / f"process-{len(list(tmp_path.glob('process-*')))}"
            folder.mkdir()
            return processes.enter_context(DspProcess(folder, programs, skel, DspLimits(**limits)))

        yield make
