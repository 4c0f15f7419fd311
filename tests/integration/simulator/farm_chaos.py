"""A farm whose devices, links, workers and labgrid are disturbed at random while cases run."""

import contextlib
import fcntl
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

from harness.core.errors import HarnessError
from harness.core.state_folders import cache_root
from harness.simulator.farm import SimulatedFarm
from harness.transport.adb_device import AdbDevice
from tests.faults.breakable import KeptServer
from tests.integration.device_runs import DeviceRuns, Finished, misnamed
from tests.integration.labgrid.rack import Labgrid
from tests.integration.transport.adb.faulty_link import FaultyLink

SUITE = '''"""Cases whose ending is known by their number."""
import os
import pytest
from harness import Bench, Model, Plan, Settings
from harness.probe.plan import Step

TINY = Model("tiny")


@pytest.mark.device
@pytest.mark.parametrize("number", range(int(os.environ["FARM_CASES"])))
def test_one(bench: Bench, number: int) -> None:
    if number % 5 == 0:
        bench.run_contexts(TINY, 1, "sequential").check()
    elif number % 5 == 1:
        steps = Step("noop"), Step("crash", {"signal": "11"})
        bench.run(Plan(steps, Settings(memory="off"))).check()
    else:
        steps = Step("noop"), Step("sleep", {"ms": str(20 * (number % 5))})
        bench.run(Plan(steps, Settings(memory="off"))).check()
'''
TIMEOUT_S = 900
# the keeper asks a coordinator that stood still so long to take places back
RELEASED_S = 60
KINDS = ("drop", "stall", "reboot", "worker", "coordinator")


class Chaos:
    """One farm on places of labgrid, and runs of the suite on it, quiet or disturbed."""

    def __init__(self, folder: Path, devices: int, cases: int) -> None:
        self.runs = DeviceRuns(folder)
        self.suite = folder / "test_farm.py"
        self.suite.write_text(SUITE)
        self.runs.environment["FARM_CASES"] = str(cases)
        self._devices = devices

    def run(self, seed: int | None) -> tuple[Finished, Counter[str], str]:
        """The run, what was done to it, and what was left of it."""
        counts = Counter[str]()
        with contextlib.ExitStack() as ends:
            farm, links, labgrid = self._begin(ends)
            command = self.runs.command("--spread=any", "-n", self._devices, "-q", self.suite)
            process = self.runs.start(command)
            stopped = threading.Event()
            disturbing = threading.Thread(
                target=self._disturb,
                args=(farm, links, labgrid, process.pid, seed, stopped, counts),
            )
            if seed is not None:
                disturbing.start()
            try:
                output, _ = process.communicate(timeout=TIMEOUT_S)
            finally:
                stopped.set()
                process.kill()
                if seed is not None:
                    disturbing.join()
            until = time.monotonic() + RELEASED_S
            while (leftovers := self._left(farm, labgrid)) and time.monotonic() < until:
                time.sleep(1)
        return Finished(process.returncode, output, self.runs.reports), counts, leftovers

    def _begin(self, ends: contextlib.ExitStack) -> tuple[SimulatedFarm, list[FaultyLink], Labgrid]:
        """The farm, and its devices as places, behind an adb server as another computer has it."""
        keys = self.runs.folder / "keys"
        keys.mkdir(mode=0o700, exist_ok=True)
        farm = ends.enter_context(SimulatedFarm(self._devices, key_folder=keys))
        links = [ends.enter_context(FaultyLink(device.address)) for device in farm.devices]
        adb = KeptServer(keys)
        ends.callback(adb.stop)
        adb.start()
        labgrid = Labgrid(self.runs.folder / "labgrid")
        ends.callback(labgrid.stop)
        service = {"address": "127.0.0.1", "port": adb.port, "username": "adb"}
        labgrid.begin(
            {device.name: {"NetworkService": dict(service)} for device in farm.devices},
            {
                device.name: {"board": "sim", "adb_serial": link.address}
                for device, link in zip(farm.devices, links, strict=True)
            },
        )
        known = {"soc": "QCS8550", "target": "linux-x64"}
        labgrid.describe(self.runs, places=self._devices, device=known)
        return farm, links, labgrid

    def _disturb(
        self,
        farm: SimulatedFarm,
        links: list[FaultyLink],
        labgrid: Labgrid,
        pid: int,
        seed: int | None,
        stopped: threading.Event,
        counts: Counter[str],
    ) -> None:
        drawn = random.Random(seed)
        kinds = list(KINDS)
        drawn.shuffle(kinds)  # each at least once where there is time for all
        while not stopped.wait(drawn.uniform(1.5, 4.5)):
            kind = kinds.pop() if kinds else drawn.choice(KINDS)
            index = drawn.randrange(self._devices)
            if kind in ("drop", "stall"):
                (links[index].cut if kind == "drop" else links[index].stall)()
                threading.Timer(drawn.uniform(0.2, 3.0), links[index].resume).start()
            elif kind == "reboot":
                with contextlib.suppress(HarnessError):
                    AdbDevice(farm.devices[index].address, farm.server).reboot(timeout_s=5)
            elif kind == "coordinator":
                labgrid.stop()
                stopped.wait(drawn.uniform(0.0, 3.0))
                labgrid.start()
            elif workers := _workers(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(drawn.choice(workers), signal.SIGKILL)
            counts[kind] += 1

    def _left(self, farm: SimulatedFarm, labgrid: Labgrid) -> str:
        """Return leftovers of a run: processes, leases, places, reservations."""
        leftovers = [f"{place} is held by {holder}" for place, holder in labgrid.holders().items()]
        if labgrid.has_reservations():
            leftovers.append("a reservation of labgrid")
        folder = os.fsencode(self.runs.environment["QNN_HARNESS_LEASES"])
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                is_probe = any(
                    os.fsencode(device.storage) + b"/" in words[0] for device in farm.devices
                )
                environment = (process / "environ").read_bytes().split(b"\0")
                if is_probe or b"QNN_HARNESS_LEASES=" + folder in environment:
                    leftovers.append(b" ".join(words)[:200].decode(errors="replace"))
        for lease in Path(os.fsdecode(folder)).glob("*"):
            with lease.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    leftovers.append(f"a lease: {file.read(200)}")
        for owner in (cache_root() / "labgrid").glob("*/owner.json"):
            with contextlib.suppress(OSError):
                if labgrid.address in owner.read_text():
                    leftovers.append(str(owner))
        return "\n".join(leftovers)


def _workers(pid: int) -> list[int]:
    """The processes of pytest-xdist below a run, which are its children."""
    pids = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if b"execnet" in Path(f"/proc/{child}/cmdline").read_bytes():
                    pids.append(int(child))
    return pids


def problems(quiet: Finished, run: Finished, cases: int, leftovers: str) -> list[str]:
    """Whatever must not be after a disturbed run."""
    truth = {case["case"]: _verdict(case) for case in quiet.cases}
    final = {case["case"]: case for case in run.cases}
    results = [f"left: {leftovers}"] if leftovers else []
    results += misnamed(run.cases)
    if len(truth) != cases or len(final) != cases:
        results.append(f"{len(final)} cases of {cases}, {len(truth)} in the quiet run")
    for name, case in final.items():
        if _verdict(case) != truth[name]:
            text = (case["error"] or {}).get("message")
            results.append(f"{name}: {_verdict(case)}, not {truth[name]}: {text}")
    attempts = Counter((case["case"], case["attempt"]) for case in run.cases)
    results += [
        f"{name} was recorded twice as attempt {n}" for (name, n), k in attempts.items() if k > 1
    ]
    finals = Counter(
        case["case"] for case in run.cases if case["outcome"] not in ("error", "unsupported")
    )
    results += [f"{name} has {count} verdicts" for name, count in finals.items() if count > 1]
    return results


def _verdict(case: dict[str, object]) -> tuple[object, object]:
    return case["outcome"], case["cause"]
