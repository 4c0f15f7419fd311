"""The whole examination: this computer, its lab, and every device at the same time."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.device.lab.attach import OpenLab
from harness.device.lab.inventory import DeviceConfig, Lab, load_lab
from harness.device.lab.lease import Leases
from harness.device.lab.quarantine import Quarantine, Quarantined
from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.facts.platforms import TARGETS
from harness.ground.files.cache import BOARDS, lease_root, quarantine_root, simulated_root
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.pypi import QNN_PLATFORMS, QNN_PROJECT
from harness.run.workbench.workbench import Workbench
from harness.tools.doctor.check import REACHABLE, Checked
from harness.tools.doctor.device_visit import Order, open_workbench, visit
from harness.tools.doctor.host_checks import LabNeeds, host_checks, packages
from harness.tools.doctor.host_facts import ask_host, index_problem
from harness.tools.doctor.lab_checks import (
    attached_checks,
    file_check,
    lab_needs,
    lease_check,
    notify_checks,
    quarantine_check,
    server_checks,
    simulated_checks,
    source_checks,
)

_log = logging.getLogger(__name__)

_REPORTS: Final = Path("reports")
_AT_ONCE: Final = 4
_INDEX_S: Final = 20.0
_LOOK_S: Final = 0.2
_END_S: Final = 5.0


def examine(order: Order) -> Iterator[Checked]:
    """Looks at everything. Raises ConfigError for an unknown device only."""
    lab: Lab | ConfigError
    devices: list[DeviceConfig] = []
    try:
        lab = load_lab(order.lab_file)
    except ConfigError as error:
        lab = error
    else:
        with_names = list(order.names) or [one.name for one in lab.in_use()]
        devices = lab.select(with_names) if with_names else []
    needs = lab_needs(devices)
    _log.info("looking at this computer")
    facts = ask_host(order.cache, _REPORTS, TARGETS, order.environment)
    yield from host_checks(facts, needs)
    _log.info("asking for libraries")
    yield _library_check(order.cache, needs)
    yield file_check(order.lab_file, lab, asked=bool(order.names))
    if isinstance(lab, ConfigError):
        return
    yield from simulated_checks(lab, devices, order.cache / BOARDS)
    try:
        yield from source_checks(Catalog.of(lab, order.environment, order.cache))
    except ConfigError as error:
        yield Checked("lab", "lab", "sources", "fail", str(error), "correct `runtimes`")
    yield from notify_checks(lab)
    _log.info("asking the lab's adb servers")
    quarantined = yield from _look_at_lab(order, lab, devices)
    yield from Visits(order, lab, quarantined).run([device.name for device in devices])


def _library_check(cache: Path, needs: LabNeeds) -> Checked:
    """What is cached of the newest QNN for each target; the index is asked if something is not."""
    catalog = Catalog(cache)
    cached: list[str] = []
    missing: list[str] = []
    # contexts are compiled and read here, whatever the devices are
    for target in sorted({"linux-x64"} | (needs.targets & set(QNN_PLATFORMS))):
        with contextlib.suppress(HarnessError):
            version = catalog.resolve("latest", target)[-1]
            there = catalog.is_cached(version, target)
            (cached if there else missing).append(f"{version} for {target}")
    problem = index_problem(QNN_PROJECT, timeout_s=_INDEX_S) if missing else None
    return Checked("host", "host", "QNN of PyPI", *packages(cached, missing, problem))


def _look_at_lab(
    order: Order, lab: Lab, devices: Sequence[DeviceConfig]
) -> Generator[Checked, None, set[str]]:
    """What is known without asking devices; returns the names of those in quarantine."""
    yield from server_checks(lab, devices)
    quarantine = Quarantine(quarantine_root(order.cache))
    leases = Leases(lease_root(), purpose="qnn-harness doctor")
    kept_out = set()
    opened = OpenLab(lab, key_folder=order.cache / "keys", storage_root=simulated_root(order.cache))
    with opened:
        yield from attached_checks(lab, devices)
        for device in devices:
            key = opened.device(device.name).key
            # a simulated one is nobody else's: each run has its own
            if not device.simulated:
                try:
                    yield lease_check(device.name, leases.look(key))
                except InfraError as error:
                    yield Checked("lab", device.name, "lease", "fail", str(error))
            entry: Quarantined | InfraError | None
            try:
                entry = quarantine.find(key)
            except InfraError as error:
                entry = error
            if isinstance(entry, Quarantined) and entry.until != "answers":
                kept_out.add(device.name)
            yield quarantine_check(device.name, entry)
    return kept_out


class Visits:
    """Visits to several devices, a few at the same time, each with a deadline of its own.

    A device that hangs is given up, and what was found by then is kept.
    """

    def __init__(self, order: Order, lab: Lab, quarantined: set[str]) -> None:
        self._order = order
        self._lab = lab
        self._quarantined = quarantined
        self._found: queue.SimpleQueue[tuple[str, Checked | None]] = queue.SimpleQueue()
        self._benches: dict[str, Workbench] = {}
        self._visiting: list[threading.Thread] = []

    def run(self, names: list[str]) -> Iterator[Checked]:
        """Visits them all; what was found of each device together, in their order."""
        waiting, until = list(names), dict[str, float]()
        found: dict[str, list[Checked]] = {name: [] for name in names}
        over: set[str] = set()
        shown = 0
        try:
            while len(over) < len(names):
                while waiting and len(until) - len(over & set(until)) < _AT_ONCE:
                    name = waiting.pop(0)
                    until[name] = time.monotonic() + self._order.timeout_s
                    self._start(name)
                for name in [name for name, end in until.items() if name not in over]:
                    if time.monotonic() >= until[name]:
                        found[name].append(self._given_up(name, asked=bool(found[name])))
                        over.add(name)
                with contextlib.suppress(queue.Empty):
                    name, check = self._found.get(timeout=_LOOK_S)
                    if name not in over and check is not None:
                        found[name].append(check)
                        _log.info(f"{name}: {check.name}")
                    elif check is None:
                        over.add(name)
                while shown < len(names) and names[shown] in over:
                    yield from found[names[shown]]
                    shown += 1
        finally:
            self._close()

    def _start(self, name: str) -> None:
        thread = threading.Thread(target=self._visit, args=(name,), name=name, daemon=True)
        _log.info(f"{name}: connecting")
        thread.start()
        self._visiting.append(thread)

    def _visit(self, name: str) -> None:
        try:
            bench = open_workbench(self._lab, self._order)
            self._benches[name] = bench
            try:
                quarantined = name in self._quarantined
                for check in visit(bench, name, self._order, quarantined=quarantined):
                    self._found.put((name, check))
            finally:
                # also what was started since somebody else closed it
                self._benches.pop(name, None)
                _close_quietly(bench)
        except Exception as error:  # a thread has nobody else to tell
            text = f"{type(error).__name__}: {error}"
            advice = "a bug of the harness, or of this lab's files: please report it"
            self._found.put((name, Checked("device", name, "doctor", "fail", text, advice)))
        finally:
            self._found.put((name, None))

    def _given_up(self, name: str, *, asked: bool) -> Checked:
        text = f"it did not come to an end within {self._order.timeout_s:g} s and was given up"
        advice = f"reboot it; `qnn-harness devices heal {name}` does so"
        return Checked("device", name, "deadline" if asked else REACHABLE, "fail", text, advice)

    def _close(self) -> None:
        """Ends what visits that were given up, or interrupted, have started."""
        benches, self._benches = dict(self._benches), {}
        ending = [
            threading.Thread(target=_close_quietly, args=(bench,), daemon=True)
            for bench in benches.values()
        ]
        for thread in ending:
            thread.start()
        until = time.monotonic() + _END_S
        # a visit whose device went away comes to its end, too
        for thread in (*ending, *self._visiting):
            thread.join(max(0.0, until - time.monotonic()))


def _close_quietly(bench: Workbench) -> None:
    with contextlib.suppress(Exception):
        bench.close()
