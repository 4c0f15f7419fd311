"""Runs of many cases over links that are disturbed at random, held against a quiet run of them."""

import contextlib
import getpass
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.core.deadline import Deadline
from harness.results.journal import read_journal
from harness.simulator.device import SimulatedDevice
from tests.faults.breakable import CONNECT_S, KeptServer
from tests.faults.chaos_link import CASE_S, ChaosLink, Disturbance
from tests.faults.chaos_suite import KINDS, kind_of
from tests.faults.control import VARIABLE, controlled
from tests.faults.table import REAL, SSH
from tests.integration.device_runs import ROOT, DeviceRuns, Finished
from tests.integration.lab.simulated import simulated
from tests.integration.lab.ssh_host import SshHost
from tests.integration.transport.adb.real_adbd import RealDevice
from tests.processes import processes_of

SUITE = Path(__file__).parent / "chaos_suite.py"
MOST_IN_A_RUN = 30
"""Cases that one run has time for, with recoveries between them."""

COME_BACK_S = 25
"""How long a device may be away: the longest stall and what it takes to connect anew."""

LONGEST_ATTEMPT_S = CASE_S + 8 + 10 + 60
"""One attempt: its plan, the look at what hangs, evidence, and making the device ready."""

EXPECTED = {
    "tiny": ("passed", None),
    "damaged": ("failed", "target"),
    "crash": ("crashed", "target"),
    "hang": ("hung", "target"),
    "slow": ("passed", None),
    "many": ("passed", None),
}
"""Outcome and cause of each kind of plan where nothing disturbs it."""

Verdict = tuple[str, str | None, str | None, int | None, int | None]


@dataclass
class ChaosRun:
    """The result of one run: its records by seed in the order of attempts, and its leftovers."""

    done: Finished
    attempts: dict[int, list[dict[str, Any]]]
    left: list[str] = field(default_factory=list)

    def final(self, seed: int) -> dict[str, Any]:
        return (self.attempts[seed] or [{"outcome": "missing"}])[-1]


def verdict_of(record: dict[str, Any]) -> Verdict:
    """Return the verdict of a record about the target."""
    error = record["error"] or {}
    return (
        record["outcome"],
        record["cause"],
        error.get("api"),
        error.get("code"),
        error.get("step"),
    )


@contextlib.contextmanager
def chaos_lab(folder: Path, daemon: str) -> Iterator[tuple[DeviceRuns, ChaosLink]]:
    """One device behind a ChaosLink: on an adb server that its user has started, or behind sshd."""
    storage = folder / "storage-main"
    runs = DeviceRuns(folder)
    lab: dict[str, Any] = {"schema": 1}
    main = {"name": "main", "soc": "QCS8550", "target": "linux-x64"}
    main |= {"workdir": f"{storage}/data/local/tmp/qnn-harness"}
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, storage, ignore_errors=True)
        if daemon == SSH:
            storage.mkdir(parents=True)
            (folder / "sshd").mkdir()
            host = cleanup.enter_context(SshHost(folder / "sshd", devices=0))
            link = cleanup.enter_context(ChaosLink(f"127.0.0.1:{host.port}", is_legible=False))
            host.trust(link.address.rpartition(":")[2])
            main |= {"transport": "ssh", "address": f"{getpass.getuser()}@{link.address}"}
            runs.environment["PATH"] = f"{host.bin}:{os.environ['PATH']}"
        else:
            link, port = _adb_link(cleanup, folder, daemon, storage)
            if daemon == REAL:
                main |= {"workdir": "/data/local/tmp/qnn-harness"}
            main |= {"serial": link.address, "host": "here"}
            lab |= {"hosts": [{"name": "here", "host": "127.0.0.1", "port": port}]}
        lab |= {"devices": [main], "recovery": {"reboot": False, "come_back_s": COME_BACK_S}}
        runs.file.write_text(yaml.safe_dump(lab))
        control, disturbed = folder / "control", set[str]()

        def disturb_once(command: str) -> None:
            """Carry out `disturb SEED`; what is tried again finds peace."""
            if command not in disturbed:
                disturbed.add(command)
                link.disturb(Disturbance.drawn(int(command.removeprefix("disturb "))))

        cleanup.enter_context(controlled(control, disturb_once))
        runs.environment[VARIABLE] = str(control)
        yield runs, link


def _adb_link(
    cleanup: contextlib.ExitStack, folder: Path, daemon: str, storage: Path
) -> tuple[ChaosLink, int]:
    """A link to a daemon, connected, and the port of the adb server."""
    home = folder / "home"
    server = KeptServer(home)
    device: SimulatedDevice | RealDevice
    if daemon == REAL:
        storage.mkdir(parents=True)
        device = RealDevice(Path(os.environ["QNN_HARNESS_ADBD_ROOT"]), storage=storage)
    else:
        device = simulated("sim-main", storage, home)
    cleanup.callback(server.stop)
    server.start()
    cleanup.callback(device.stop)
    device.start()
    link = cleanup.enter_context(ChaosLink(device.address))
    server.server.connect(link.address, deadline=Deadline(CONNECT_S))
    return link, server.port


def run_once(
    folder: Path,
    daemon: str,
    seeds: Sequence[int],
    *,
    quiet: bool = False,
    opening: Disturbance | None = None,
) -> ChaosRun:
    """Runs the cases of these seeds on a lab of their own; `quiet`: none of them is disturbed.

    `opening` disturbs the first look at the device.
    """
    folder.mkdir()
    with chaos_lab(folder, daemon) as (runs, link):
        if opening is not None:
            link.disturb(opening)
        completed = runs.run(
            suites=SUITE,
            QNN_CHAOS_SEEDS=" ".join(map(str, seeds)),
            QNN_CHAOS_QUIET="1" if quiet else "",
            PYTHONPATH=str(ROOT),
        )
        link.calm()
        leftovers = sorted(
            str(path.relative_to(folder))
            for pattern in ("store/.incoming/*", "sets/.new-*", ".qnn-harness-*")
            for path in (folder / "storage-main").rglob(pattern)
            if path.is_file()
        )
    leftovers += map(str, processes_of(folder).items())
    journal = completed.folder / "latest/results.jsonl"
    contents = read_journal(journal)
    assert contents.damage == (), completed.output[-3000:]
    attempts: dict[int, list[dict[str, Any]]] = {seed: [] for seed in seeds}
    for record in completed.cases:
        attempts[record["axes"]["seed"]].append(record)
    return ChaosRun(completed, attempts, leftovers)


@dataclass(frozen=True)
class Chaos:
    """The truth by kind of plan, from a quiet run, and the disturbed runs."""

    truth: dict[str, Verdict]
    runs: list[ChaosRun]

    def problems(self) -> list[str]:
        """Whatever must not be, in all runs."""
        return [problem for run in self.runs for problem in problems(self.truth, run)]

    def outcomes(self) -> Counter[str]:
        return Counter(run.final(s)["outcome"] for run in self.runs for s in run.attempts)


def run_many(folder: Path, daemon: str, seeds: Sequence[int], *, at_once: int) -> Chaos:
    """Runs the cases of these seeds, `at_once` runs beside each other, and a quiet one."""
    folder.mkdir(exist_ok=True)
    runs_in_all = max(at_once, -(-len(seeds) // MOST_IN_A_RUN))
    each = -(-len(seeds) // runs_in_all)
    # neighbours, so that every run has plans of all kinds, and with them failing ones
    parts = [seeds[start : start + each] for start in range(0, len(seeds), each)]
    with ThreadPoolExecutor(at_once + 1) as pool:
        kinds = range(len(KINDS))
        quiet = pool.submit(run_once, folder / "quiet", daemon, kinds, quiet=True)
        folders = [folder / f"part-{number}" for number in range(len(parts))]
        openings = [Disturbance.drawn(-1 - part[0]) for part in parts]
        runs = list(
            pool.map(
                lambda seed, part, opening: run_once(seed, daemon, part, opening=opening),
                folders,
                parts,
                openings,
            )
        )
        known = quiet.result()
    truth = {kind_of(seed): verdict_of(known.final(seed)) for seed in known.attempts}
    return Chaos(truth, runs)


def _heard_less(truth: dict[str, Verdict], seed: int) -> list[Verdict]:
    """That a process hung is proved by the device's own clock, its step by a living stream only."""
    hung = ("hung", "target")
    return [(*hung, None, None, None)] if truth[kind_of(seed)][:2] == hung else []


def problems(truth: dict[str, Verdict], run: ChaosRun) -> list[str]:
    """Return all problems: wrong verdicts, records too many or too few, leftovers, time overrun."""
    problems = [f"left behind: {leftover}" for leftover in run.left]
    for seed, records in run.attempts.items():
        if not records:
            problems.append(f"seed {seed}: no record")
        name = f"seed {seed} ({kind_of(seed)}; {Disturbance.drawn(seed)})"
        if [record["attempt"] for record in records] != list(range(1, len(records) + 1)):
            numbers = [record["attempt"] for record in records]
            problems.append(f"{name}: missing or double records, attempts {numbers}")
        for record in records:
            verdict = verdict_of(record)
            in_the_lab = record["outcome"] == "error" and record["cause"] == "infra"
            if not in_the_lab and verdict not in (truth[kind_of(seed)], *_heard_less(truth, seed)):
                message = (record["error"] or {}).get("message")
                problems.append(f"{name}: {verdict} in place of {truth[kind_of(seed)]}: {message}")
            if record["duration_s"] > LONGEST_ATTEMPT_S:
                problems.append(f"{name}: took {record['duration_s']} s")
    if "INTERNALERROR" in run.done.output or run.done.code not in (1, 3):
        problems.append(f"exit code {run.done.code}: {run.done.output[-2000:]}")
    return problems
