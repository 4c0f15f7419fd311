"""Whichever side of a DSP is killed, whenever: no process, no lock and no memory is left."""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.dsp.simulated_dsp import DspPrograms
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.dsp.board import DspBoard, executes, frees, loads, processes_of

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]
QNN = "2.51.0"
ENOUGH_S = 20.0
# the emulator begins, the skel initialises, calls, a context, a graph, the end
MOMENTS = (0.3, 1.0, 1.8)


@pytest.fixture
def board(runtime_for: RuntimeFor, tmp_path: Path, programs: DspPrograms) -> DspBoard:
    runtime = runtime_for(QNN, "linux-arm64")
    libraries = [file.path for file in runtime.files if file.path.name.startswith("libQnn")]
    return DspBoard(libraries, tmp_path / "board", programs)


def locked_slots(board: DspBoard) -> list[str]:
    locked = []
    for slot in (board.dsp / "slots").iterdir():
        with slot.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                locked.append(slot.name)
    return locked


def left(board: DspBoard) -> tuple[list[int], list[str]]:
    """Return leftovers of a board a few seconds after its programs."""
    end = time.monotonic() + ENOUGH_S
    while True:
        leftovers = (list(processes_of(board.dsp.parent)), locked_slots(board))
        if leftovers == ([], []) or time.monotonic() > end:
            return leftovers
        time.sleep(0.05)


def begin(board: DspBoard, context_for: ContextFor) -> subprocess.Popen[bytes]:
    context = context_for("io-heavy-4mb-by-memhandle", QNN)
    plan = board.plan(loads([context]) + executes(0, context, "memhandle"), frees(1))
    client = board.start(plan)
    assert client.stdin is not None
    client.stdin.write(plan.text().encode())
    client.stdin.close()
    client.stdin = None
    return client


@pytest.mark.slow
@pytest.mark.parametrize(
    "whole",
    [pytest.param(True, marks=pytest.mark.slow), False],
    ids=["the client", "the DSP's process"],
)
def test_nothing_is_left_whoever_is_killed_and_whenever(
    board: DspBoard, context_for: ContextFor, whole: bool
) -> None:
    for moment in MOMENTS:
        client = begin(board, context_for)
        try:
            time.sleep(moment)
            if whole:
                client.kill()
            else:
                for process in set(processes_of(board.dsp.parent)) - {client.pid}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            # the library waits for itself where it is told of a death while it opens its device
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.communicate(timeout=ENOUGH_S / 2)
        finally:
            client.kill()
            client.communicate()
        assert left(board) == ([], []), f"after {moment} s"
    context = context_for("tiny", QNN)
    assert board.run(loads([context]), frees(1)).codes("context-load") == [0], "it runs on"
