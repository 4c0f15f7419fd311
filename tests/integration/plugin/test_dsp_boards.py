"""Boards with a DSP end to end: cases on the device's own skel, and nothing is left of them."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from harness.core.state_folders import BOARDS, cache_root
from harness.dsp.emulator import VARIABLE, find_qemu
from harness.dsp.replies import read_votes
from harness.simulator.board import dsp_folder
from tests.hostile_models import relu
from tests.integration.device_runs import DeviceRuns
from tests.needed import DSP, need
from tests.processes import processes_of
from tests.waiting import wait_for

LAB = """schema: 1
devices:
  - {name: dsp-1, simulated: true, soc: QCS8550, target: linux-arm64, dsp: true}
  - {name: dsp-0, simulated: true, soc: QCS8550, target: linux-arm64, dsp: {sessions: 0}}
"""
TINY = ("-k", "context_count and tiny and resident-8")


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[DeviceRuns]:
    need(DSP)
    runs = DeviceRuns(tmp_path)
    runs.file.write_text(LAB)
    yield runs
    wait_for(lambda: not processes_of(tmp_path), "nothing is left", 10)


def only(runs: DeviceRuns, device: str, *chosen: str, **settings: str) -> dict[str, Any]:
    completed = runs.run("--device", device, *chosen, **settings)
    (case,) = completed.cases
    return case | {"output": completed.output, "code": completed.code}


@pytest.mark.slow
def test_a_case_runs_on_the_skel(runs: DeviceRuns) -> None:
    case = only(runs, "dsp-1", *TINY)
    assert (case["outcome"], case["code"]) == ("passed", 0), case["output"]
    assert (case["measurements"]["executed"], case["outputs"]) == (8, "reference")
    assert (case["preflight"], case["emulated"]) == ([], [])
    assert any("libcdsprpc.so" in path for path in case["device"]["coprocessors"]["dsp"])


@pytest.mark.slow
def test_what_a_limit_refuses_is_told_as_no_phones_answer(runs: DeviceRuns) -> None:
    case = only(runs, "dsp-0", *TINY)
    assert (case["outcome"], case["cause"]) == ("failed", "target"), case["output"]
    assert case["error"]["api"] == "QnnDevice_create"
    answer = case["emulated"][0]
    assert (answer["by"], answer["call"], answer["answer"]) == ("kernel", "open", "0x72")


MOCK_LACKING = r"""printf 'emulator\tinvoke\tSIGILL\tvadd(sf,sf) at 0x1000\n' >>"$QNN_DSP/said"
kill -9 $$"""
MOCK_CRASH = "echo 'mock: this DSP dies'; kill -9 $$"


def mock_emulator(folder: Path, does: str) -> str:
    """An emulator that does this in place of being the DSP, and can what the real one can."""
    mock, real = folder / "mock-qemu-hexagon", find_qemu(cache_root() / BOARDS).path
    mock.write_text(f"#!/bin/sh\ncase $1 in\n*/loader)\n{does} ;;\nesac\nexec '{real}' \"$@\"\n")
    mock.chmod(0o755)
    return str(mock)


def test_what_the_emulator_lacks_is_unsupported(runs: DeviceRuns) -> None:
    mock = mock_emulator(runs.folder, MOCK_LACKING)
    case = only(runs, "dsp-1", *TINY, **{VARIABLE: mock})
    assert (case["outcome"], case["cause"]) == ("unsupported", None), case["output"]
    assert "vadd(sf,sf) at 0x1000 (invoke: SIGILL)" in case["error"]["message"]
    assert "emulator" in {answer["by"] for answer in case["emulated"]}


@pytest.mark.slow
def test_what_the_dsp_printed_is_evidence_of_a_failure(runs: DeviceRuns) -> None:
    mock = mock_emulator(runs.folder, MOCK_CRASH)
    case = only(runs, "dsp-1", *TINY, **{VARIABLE: mock})
    assert (case["outcome"], case["cause"]) == ("failed", "target"), case["output"]
    assert [item for item in case["emulated"] if "process" in item["words"]]
    (log,) = (item for item in case["logs"] if item.endswith("evidence/simulated-dsp.txt"))
    text = (runs.reports / "latest" / log).read_text()
    assert text.startswith("mock: this DSP dies\n")


def dsps(folder: Path) -> list[int]:
    """The DSP's processes of the boards below a folder."""
    return [pid for pid, line in processes_of(folder).items() if b"/dsp/loader\0" in line]


@pytest.mark.nightly
def test_each_death_of_a_dsp_has_its_true_outcome(runs: DeviceRuns) -> None:
    chance = random.Random(31)
    for _ in range(50):
        killed = threading.Event()
        stopped = threading.Event()

        def kill_one(killed: threading.Event, stopped: threading.Event, after_s: float) -> None:
            while not stopped.wait(0.02):
                if pids := dsps(runs.folder):
                    time.sleep(after_s)
                    for pid in pids:
                        with contextlib.suppress(ProcessLookupError):  # it ended by itself
                            os.kill(pid, signal.SIGKILL)
                    killed.set()
                    return

        killer = threading.Thread(target=kill_one, args=(killed, stopped, chance.uniform(0, 4)))
        killer.start()
        case = only(runs, "dsp-1", *TINY)
        stopped.set()
        killer.join()
        replies = [item["words"] for item in case["emulated"] if item["by"] == "kernel"]
        if case["outcome"] == "passed":
            assert case["measurements"]["executed"] == 8
        else:
            assert (case["outcome"], case["cause"]) == ("failed", "target"), case["error"]
            assert killed.is_set(), case["error"]
            assert any("process" in words for words in replies), case["emulated"]


HANG = """
import pytest
from harness.models.session_plan import within_session
from harness.probe.plan import Settings, Step

@pytest.mark.device(backend="htp")
def test_hangs(bench):
    plan = within_session(bench.libraries(), [Step("hang")], [], Settings())
    bench.run(plan, timeout_s={}).check()
"""
BURST = ("--device=dsp-1", "--power=burst")
VOTED = "DSPRPC_CONTROL_LATENCY: enable 3, latency 9999 us"
ENDED = "protection domain: ended, and its votes with it"


@pytest.mark.slow
def test_votes_for_power_end_with_a_killed_probe(runs: DeviceRuns) -> None:
    completed = runs.run(*BURST, suites=runs.write_suite(HANG.format(20)))
    (case,) = completed.cases
    assert (case["outcome"], case["placement"]["power"]) == ("hung", "burst"), completed.output
    power = case["measurements"]["power"]
    assert "the library accepted all votes; its votes ended with the process" in power["answer"]
    assert "released" not in power["votes"]
    assert power["arrived"][-2:] == [VOTED, ENDED]
    assert f"Power profile burst, 1 case: {power['answer']}" in completed.output


FAR_LAB = """schema: 1
gate: {{max_busy_percent: 100}}
hosts: [{{name: here, socket: {socket}}}]
devices:
  - {{name: dsp-1, serial: "{serial}", host: here, target: linux-arm64, workdir: {workdir}}}
"""


@contextlib.contextmanager
def started(lab: DeviceRuns) -> Iterator[Path]:
    """The storage of dsp-1, which outlives what runs on it; the lab has its address."""
    command = [sys.executable, "-m", "harness.cli.main", "simulator", "start", "dsp-1"]
    environment, storage = lab.environment, lab.folder / "simulated/dsp-1"
    with subprocess.Popen(
        command, cwd=lab.folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as board:
        try:
            assert board.stdout is not None
            serial, socket = (
                board.stdout.readline().split(mark)[1].split()[0].rstrip(";")
                for mark in (" as ", "localfilesystem:")
            )
            workdir = storage / "data/local/tmp/qnn-harness"
            lab.file.write_text(FAR_LAB.format(serial=serial, socket=socket, workdir=workdir))
            yield storage
        finally:
            board.terminate()


@pytest.mark.slow
def test_votes_for_power_end_with_a_killed_worker(runs: DeviceRuns) -> None:
    command = runs.command(*BURST, "-n1", runs.write_suite(HANG.format(600)))
    with started(runs) as storage:
        environment, nowhere = runs.environment, subprocess.DEVNULL
        with subprocess.Popen(command, env=environment, stdout=nowhere) as controller:
            try:
                folder = dsp_folder(storage)
                wait_for(lambda: VOTED in read_votes(folder), "votes", 90)
                commands = processes_of(runs.folder).items()
                (worker,) = (pid for pid, line in commands if b"exec(eval(" in line)
                os.kill(worker, signal.SIGKILL)
                wait_for(lambda: ENDED in read_votes(folder), "their end", 20)
            finally:
                controller.kill()


@pytest.mark.slow
def test_a_detailed_profile_that_is_refused_becomes_a_basic_one(runs: DeviceRuns) -> None:
    onnx.save(relu(1, 16), runs.folder / "m.onnx")
    code, output, (record,) = runs.run_files("m.onnx", "--profile=ops", "--device=dsp-1")
    assert (code, record["outcome"]) == (0, "passed"), output
    profile = record["measurements"]["profile"]
    assert (profile["level"], profile["ops"]) == ("basic", [])
    (note,) = profile["notes"]
    assert "(6006, QNN_GRAPH_ERROR_SET_PROFILE)" in note
