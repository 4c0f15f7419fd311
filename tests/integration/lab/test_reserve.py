"""Persons and other runs have a device after one case, and no run loses a case by that."""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.faults.breakable import KeptServer
from tests.integration.device_runs import RUN_TIMEOUT_S, DeviceRuns, Finished
from tests.integration.lab.simulated import simulated
from tests.waiting import wait_for

NAMES = ("one", "two")
CASE_S = 1.0
SUITE = f'''"""Cases of a second; with a gate the third last to run waits, and all from HELD on."""
import os
import time
from pathlib import Path
import pytest
from harness.probe.plan import Plan, Step

CASES, GATE = int(os.environ["CASES"]), Path(os.environ["GATE"])
HELD = range(int(os.environ.get("HELD", CASES)), CASES)
ENDED = Path(f"{{GATE}}-ended-{{CASES}}")


@pytest.mark.device
@pytest.mark.parametrize("number", range(CASES))
def test_slow(bench, number):
    bench.run(Plan((Step("noop"),))).check()
    time.sleep({CASE_S})
    until = time.monotonic() + 600
    waits = number in HELD or (ENDED.exists() and ENDED.stat().st_size == CASES - 3)
    if waits:
        with GATE.with_name("held").open("a") as file:
            file.write("x")
    while waits and GATE.exists() and time.monotonic() < until:
        time.sleep(0.05)
    with ENDED.open("a") as file:
        file.write("x")
'''


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[DeviceRuns]:
    """A lab of two devices of a pool that have addresses which stay, as real ones have."""
    runs, home = DeviceRuns(tmp_path), tmp_path / "home"
    server = KeptServer(home)
    with contextlib.ExitStack() as stack:
        devices = [stack.enter_context(simulated(name, tmp_path / name, home)) for name in NAMES]
        server.start()
        stack.callback(server.stop)
        entries = [
            {"name": name, "serial": device.address, "host": "here", "target": "linux-x64"}
            | {"soc": "QCS8550", "pool": "both", "workdir": str(tmp_path / name / "work")}
            for name, device in zip(NAMES, devices, strict=True)
        ]
        host = {"name": "here", "host": "127.0.0.1", "port": server.port}
        runs.file.write_text(json.dumps({"schema": 1, "hosts": [host], "devices": entries}))
        (tmp_path / "test_slow.py").write_text(SUITE)
        yield runs


class Started:
    """A process whose output is in a file."""

    def __init__(self, runs: DeviceRuns, command: list[str], log: str, cases: int = 0) -> None:
        self.log = runs.folder / log
        env = runs.environment | {"CASES": str(cases), "GATE": str(runs.folder / "gate")}
        with self.log.open("wb") as output:
            self.process = runs.start(command, cwd=runs.folder, env=env, stdout=output)

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str) -> float:
        """Waits until it has said something; how long that took."""
        start = time.monotonic()
        wait_for(lambda: text in self.output, lambda: f"not said: {text}\n{self.output}", 600)
        return time.monotonic() - start

    def end(self) -> int:
        return self.process.wait(RUN_TIMEOUT_S)


@contextlib.contextmanager
def started(
    runs: DeviceRuns, reports: str, cases: int, *options: object, words: tuple[str, ...] = ()
) -> Iterator[Started]:
    """A run, or a command if there are `words`, which ends with the block."""
    command = runs.command("-v", "-rA", *options, runs.folder / "test_slow.py")
    command[command.index("--reports") + 1] = str(runs.folder / reports)
    if words:
        command = [sys.executable, "-m", "harness.cli.main", *words, "--lab", str(runs.file)]
    session = Started(runs, command, f"{reports}.log", cases)
    try:
        yield session
    finally:
        session.process.kill()
        session.process.wait()


def journal(runs: DeviceRuns, reports: str) -> Finished:
    return Finished(0, "", runs.folder / reports)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def spans(cases: list[dict[str, Any]], device: str) -> list[tuple[float, float]]:
    """Return the start and end of each case on a device, by the wall clock."""
    of_device = [case for case in cases if case["device"]["name"] == device]
    return [(moment(c["started"]), moment(c["started"]) + c["duration_s"]) for c in of_device]


def is_whole(runs: DeviceRuns, reports: str, cases: int) -> None:
    whole_cases = journal(runs, reports).cases
    assert [case["outcome"] for case in whole_cases] == ["passed"] * cases, whole_cases


@pytest.mark.nightly
def test_a_person_has_a_device_within_a_case_and_the_run_ends_whole(shared: DeviceRuns) -> None:
    """The cases that fit another device go on there; with it back, both work."""
    gate, shared.environment["HELD"] = shared.folder / "gate", "2"
    gate.touch()
    with started(shared, "run", 12, "-n", 2) as run:
        wait_for(lambda: "PASSED" in run.output, lambda: run.output, 600)
        with started(
            shared, "reserve", 0, words=("devices", "reserve", "one", "--why", "look")
        ) as person:
            person.wait_for("waiting for device one")
            gate.unlink()
            assert person.wait_for("one is reserved for 30:00") < 20 * CASE_S
            start = time.time()
            output = shared.qnn_harness("devices", "list", "--lab", shared.file).stdout
            assert "devices reserve: look" in output
            assert " until " in output
            time.sleep(2 * CASE_S)
            ended = time.time()
            person.process.send_signal(signal.SIGINT)
            assert person.end() == 0, person.output
            assert "one is released" in person.output
        assert run.end() == 0, run.output
    is_whole(shared, "run", 12)
    cases = journal(shared, "run").cases
    assert not [span for span in spans(cases, "one") if span[0] < ended and span[1] > start]
    assert [span for span in spans(cases, "two") if start < span[0] < ended]
    assert not list((shared.folder / "leases").iterdir())


@pytest.mark.slow
def test_a_short_run_waits_for_one_case_at_most(shared: DeviceRuns) -> None:
    """It has a device whenever a case of the long run ends, also if all are in use."""
    with started(shared, "long", 300, "-n", 2) as long:
        wait_for(lambda: "PASSED" in long.output, lambda: long.output, 600)
        with started(shared, "short", 4, "-n", 2) as short:
            assert short.end() == 0, short.output
        assert long.process.poll() is None, long.output
        long.process.send_signal(signal.SIGINT)
        assert long.end() == 2, long.output
    is_whole(shared, "short", 4)
    ours, theirs = (
        sorted(span for name in NAMES for span in spans(journal(shared, run).cases, name))
        for run in ("short", "long")
    )
    assert {case["outcome"] for case in journal(shared, "long").cases} == {"passed"}
    # beside a case of the short run others begin two on the other device, and then one on each
    for (earlier, _), (later, _) in pairwise(ours):
        assert sum(earlier < other < later for other, _ in theirs) <= 4, (ours, theirs)


@pytest.mark.nightly
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_ends_while_a_person_has_its_device_leaves_nothing(
    shared: DeviceRuns, way: signal.Signals
) -> None:
    """Nor does it take the device from the person."""
    with started(shared, "run", 60, "--device", "one", "-n0") as run:
        wait_for(lambda: "PASSED" in run.output, lambda: run.output, 600)
        with started(
            shared, "reserve", 0, words=("devices", "reserve", "one", "--for", "1h")
        ) as person:
            person.wait_for("one is reserved")
            run.wait_for("waiting for device one, in use by")
            run.process.send_signal(way)
            run.end()
            output = shared.qnn_harness("devices", "list", "--lab", shared.file).stdout
            assert "devices reserve" in output
            person.process.send_signal(signal.SIGTERM)
            person.end()
    with started(shared, "again", 1, "--device", "one", "-n0") as again:
        assert again.end() == 0, again.output
    assert not list((shared.folder / "leases").iterdir())
