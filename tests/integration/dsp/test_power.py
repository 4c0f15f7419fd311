"""Votes for power as they arrive in front of the DSP's system, from the real library and skel."""

import os
import signal
from pathlib import Path

import pytest

from harness.dsp.replies import clear_replies, read_votes
from harness.dsp.simulated_dsp import DspPrograms
from harness.models.session_plan import Context
from harness.probe.plan import Settings, Step, execute
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.dsp.board import DspBoard, frees, loads, processes_of
from tests.integration.probe.test_power import probe_with_unlike_corners
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.needs("qemu-aarch64"),
    pytest.mark.needs("aarch64-linux-gnu-gcc"),
]
QNN = "2.51.0"
FAST, SLOW = "latency 9999 us", "latency 0 us"
RELEASED = [
    "HAP_power_set: dcvs 1, mode 0x4, latency 2000 us, bus 1 1 1, core 1 1 1",
    "DSPRPC_CONTROL_LATENCY: enable 1, latency 0 us",
    "DSPRPC_CONTROL_LATENCY: enable 3, latency 0 us",
    "HAP_power_set: nothing",
]
ENDED = "protection domain: ended, and its votes with it"


@pytest.fixture
def board(runtime_for: RuntimeFor, tmp_path: Path, programs: DspPrograms) -> DspBoard:
    runtime = runtime_for(QNN, "linux-arm64")
    libraries = [file.path for file in runtime.files if file.path.name.startswith("libQnn")]
    return DspBoard(libraries, tmp_path / "board", programs)


@pytest.mark.slow
def test_five_profiles_as_they_arrive(board: DspBoard) -> None:
    """Profiles become votes for clocks, control latency and polling."""
    for profile, dcvs, polling in (
        ("burst", "dcvs 0, mode 0x10, latency 40 us, bus 255 255 255, core 255 255 255", FAST),
        ("high_performance", "dcvs 0, mode 0x10, latency 100 us, bus 6 6 6, core 6 6 6", FAST),
        ("balanced", "dcvs 1, mode 0x10, latency 1000 us, bus 5 5 5, core 5 5 5", SLOW),
        ("power_saver", "dcvs 1, mode 0x10, latency 1000 us, bus 2 2 2, core 2 2 2", SLOW),
        ("extreme_power_saver", "dcvs 1, mode 0x4, latency 1000 us, bus 0 0 0, core 0 0 0", SLOW),
    ):
        clear_replies(board.dsp)
        outcome = board.run(settings=Settings(power=profile))
        assert outcome.codes("device-free") == [0]
        assert read_votes(board.dsp) == [
            f"HAP_power_set: {dcvs}",
            "DSPRPC_CONTROL_LATENCY: enable 1, latency 100 us",
            f"DSPRPC_CONTROL_LATENCY: enable 3, {polling}",
            *RELEASED,
        ]
        assert outcome.said == ()


@pytest.mark.slow
def test_without_a_profile_no_vote_arrives(board: DspBoard) -> None:
    assert board.run().codes("device-create") == [0]
    assert read_votes(board.dsp) == []


@pytest.mark.slow
def test_the_votes_of_a_killed_process_end_with_its_protection_domain(board: DspBoard) -> None:
    plan = board.plan([Step("hang")], settings=Settings(power="burst"))
    process = board.start(plan)
    assert process.stdin is not None
    process.stdin.write(plan.text().encode())
    process.stdin.close()
    wait_for(lambda: len(read_votes(board.dsp)) == 3)
    assert [*processes_of(board.dsp / "loader")]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: read_votes(board.dsp)[3:] == [ENDED])
    wait_for(lambda: not [*processes_of(board.dsp / "loader")])


@pytest.mark.slow
def test_no_corner_is_in_the_place_of_another(board: DspBoard, tmp_path: Path) -> None:
    """At the DSP's system the target comes first."""
    board.probe = probe_with_unlike_corners(tmp_path / "probe", "linux-arm64")
    board.run(settings=Settings(power="high_power_saver"))
    vote = "HAP_power_set: dcvs 1, mode 0x10, latency 1000 us, bus 4 3 5, core 5 4 6"
    assert read_votes(board.dsp)[0] == vote


def executed(context: Context, rounds: int) -> list[Step]:
    files = {"inputs": map(str, context.inputs), "expected": map(str, context.expected)}
    tolerance = context.tolerance
    return [execute(0, repeat=rounds, tolerance=tolerance, **files)]  # type: ignore[arg-type]


@pytest.mark.slow
def test_outputs_are_the_same_with_votes(board: DspBoard, context_for: ContextFor) -> None:
    context = context_for("tiny", QNN)
    steps = loads([context]) + executed(context, 3)
    outcome = board.run(steps, frees(1), settings=Settings(power="burst"))
    assert outcome.codes("execute") == outcome.codes("device-free") == [0]
    assert read_votes(board.dsp)[-4:] == RELEASED
