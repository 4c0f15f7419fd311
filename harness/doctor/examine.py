"""The whole examination: this computer, its lab, and every device at the same time."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.cache import quarantine_root, simulated_root
from harness.doctor.device_visit import VisitRules, open_workbench, visit
from harness.doctor.host_checks import LabNeeds, host_checks, packages
from harness.doctor.host_facts import ask_host, index_problem
from harness.doctor.lab_checks import (
    attached_checks,
    file_check,
    find_entry,
    lab_needs,
    lease_check,
    quarantine_check,
    server_checks,
)
from harness.errors import ConfigError, HarnessError, InfraError
from harness.lab.attach import OpenLab
from harness.lab.checks import REACHABLE, Check
from harness.lab.inventory import DeviceConfig, Lab, load_lab
from harness.lab.lease import Leases, lease_root
from harness.lab.quarantine import Quarantine, Quarantined
from harness.runtimes.catalog import QNN_PROJECT, Catalog
from harness.workbench import Workbench

DEVICE_TIMEOUT_S: Final = 300.0
"""Enough for a first run, which fetches 100 MB and compiles a context."""

_REPORTS: Final = Path("reports")
_AT_ONCE: Final = 4
_INDEX_S: Final = 20.0
_LOOK_S: Final = 0.2
_END_S: Final = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What to look at: devices by name (none: all enabled), with which runtime, for how long."""

    lab_file: Path
    names: tuple[str, ...]
    cache: Path
    environment: Mapping[str, str]
    qnn: str = "latest"
    smoke: bool = True
    timeout_s: float = DEVICE_TIMEOUT_S


def examine(order: Order, *, notify: Say, warn: Say, tell: Callable[[Check], None]) -> None:
    """Looks at everything and tells each finding. Raises ConfigError for an unknown device only."""
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
    _look_at_host(order, needs, notify, tell)
    tell(file_check(order.lab_file, lab))
    if isinstance(lab, ConfigError):
        return
    notify("asking the lab's adb servers")
    quarantined = _look_at_lab(order, lab, devices, tell)
    visits = Visits(order, lab, quarantined, warn=warn)
    visits.run([device.name for device in devices], notify, tell)


def _look_at_host(
    order: Order, needs: LabNeeds, notify: Say, tell: Callable[[Check], None]
) -> None:
    notify("looking at this computer")
    targets = ("linux-x64", "linux-arm64", "android-arm64")
    facts = ask_host(order.cache, _REPORTS, targets, order.environment)
    for check in host_checks(facts, needs):
        tell(check)
    notify("asking for libraries")
    tell(_library_check(order.cache, needs))


def _library_check(cache: Path, needs: LabNeeds) -> Check:
    """What is cached of the newest QNN for each target; the index is asked if something is not."""
    catalog = Catalog(cache, notify=lambda text: None, warn=lambda text: None)
    cached: list[str] = []
    missing: list[str] = []
    for target in sorted(needs.targets & {"linux-x64", "linux-arm64"}) or ["linux-x64"]:
        with contextlib.suppress(HarnessError):
            version = catalog.resolve("latest", target)[-1]
            there = catalog.is_cached(version, target)
            (cached if there else missing).append(f"{version} for {target}")
    return packages(cached, missing, _index_problem(missing))


def _index_problem(missing: list[str]) -> str | None:
    return index_problem(QNN_PROJECT, timeout_s=_INDEX_S) if missing else None


def _look_at_lab(
    order: Order, lab: Lab, devices: Sequence[DeviceConfig], tell: Callable[[Check], None]
) -> set[str]:
    """Tells what is known without asking devices; the names of those in quarantine."""
    for check in server_checks(lab, devices):
        tell(check)
    quarantine = Quarantine(quarantine_root(order.cache))
    leases = Leases(lease_root(), purpose="qnn-harness doctor")
    kept_out = set()
    opened = OpenLab(lab, key_folder=order.cache / "keys", storage_root=simulated_root(order.cache))
    with opened:
        for check in attached_checks(lab, devices):
            tell(check)
        for device in devices:
            key = opened.key(device.name)
            try:
                tell(lease_check(device.name, leases.look(key)))
            except InfraError as error:
                tell(Check("lab", device.name, "lease", "fail", str(error)))
            entry = find_entry(quarantine, key)
            if isinstance(entry, Quarantined):
                kept_out.add(device.name)
            tell(quarantine_check(device.name, entry))
    return kept_out


class Visits:
    """Visits to several devices, a few at the same time, each with a deadline of its own.

    A device that hangs is given up, and what was found by then is kept.
    """

    def __init__(self, order: Order, lab: Lab, quarantined: set[str], *, warn: Say) -> None:
        self._order = order
        self._lab = lab
        self._quarantined = quarantined
        self._warn = warn
        self._found: queue.SimpleQueue[tuple[str, Check | None]] = queue.SimpleQueue()
        self._benches: dict[str, Workbench] = {}
        self._rules = VisitRules(
            cache=order.cache,
            logs=order.cache / "doctor",
            environment=order.environment,
            qnn=order.qnn,
            smoke=order.smoke,
        )

    def run(self, names: list[str], notify: Say, tell: Callable[[Check], None]) -> None:
        """Visits them all; tells of each device together, in their order."""
        waiting, until = list(names), dict[str, float]()
        found: dict[str, list[Check]] = {name: [] for name in names}
        over: set[str] = set()
        shown = 0
        try:
            while len(over) < len(names):
                while waiting and len(until) - len(over & set(until)) < _AT_ONCE:
                    name = waiting.pop(0)
                    until[name] = time.monotonic() + self._order.timeout_s
                    self._start(name, notify)
                for name in [name for name, end in until.items() if name not in over]:
                    if time.monotonic() >= until[name]:
                        found[name].append(self._given_up(name, asked=bool(found[name])))
                        over.add(name)
                with contextlib.suppress(queue.Empty):
                    name, check = self._found.get(timeout=_LOOK_S)
                    if name not in over and check is not None:
                        found[name].append(check)
                        notify(f"{name}: {check.name}")
                    elif check is None:
                        over.add(name)
                while shown < len(names) and names[shown] in over:
                    for check in found[names[shown]]:
                        tell(check)
                    shown += 1
        finally:
            self._close()

    def _start(self, name: str, notify: Say) -> None:
        thread = threading.Thread(target=self._visit, args=(name,), name=name, daemon=True)
        notify(f"{name}: connecting")
        thread.start()

    def _visit(self, name: str) -> None:
        try:
            bench = open_workbench(self._lab, self._rules, lambda text: None, self._warn)
            self._benches[name] = bench
            try:
                visit(
                    bench,
                    name,
                    self._rules,
                    quarantined=name in self._quarantined,
                    tell=lambda check: self._found.put((name, check)),
                )
            finally:
                if self._benches.pop(name, None) is not None:
                    bench.close()
        except Exception as error:  # a thread has nobody else to tell
            text = f"{type(error).__name__}: {error}"
            advice = "a bug of the harness, or of this lab's files: please report it"
            self._found.put((name, Check("device", name, "doctor", "fail", text, advice)))
        finally:
            self._found.put((name, None))

    def _given_up(self, name: str, *, asked: bool) -> Check:
        text = f"it did not come to an end within {self._order.timeout_s:g} s and was given up"
        advice = f"reboot it; `qnn-harness devices heal {name}` does so"
        title = "deadline" if asked else REACHABLE
        return Check("device", name, title, "fail", text, advice)

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
        for thread in ending:
            thread.join(max(0.0, until - time.monotonic()))


def _close_quietly(bench: Workbench) -> None:
    with contextlib.suppress(Exception):
        bench.close()
