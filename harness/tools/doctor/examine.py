"""The whole examination: this computer, its lab, and every device at the same time."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from harness.device.lab.inventory import DeviceConfig, Lab, load_lab
from harness.ground.errors import ConfigError, HarnessError
from harness.ground.facts.platforms import TARGETS
from harness.ground.files.cache import BOARDS
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.pypi import QNN_PLATFORMS, QNN_PROJECT
from harness.run.workbench.workbench import Workbench
from harness.tools.doctor.check import REACHABLE, Checked
from harness.tools.doctor.device_visit import Order, open_workbench, visit
from harness.tools.doctor.host_checks import LabNeeds, host_checks, packages
from harness.tools.doctor.host_facts import ask_host, index_problem
from harness.tools.doctor.lab_checks import (
    file_check,
    lab_needs,
    notify_checks,
    other_checks,
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
    yield from server_checks(lab, devices)
    yield from other_checks(lab)
    yield from visits(order, lab, [device.name for device in devices])


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


class Visit(threading.Thread):
    """A visit to a device, in one of a few slots, with a deadline of its own.

    What it found by then is kept if it hangs and is given up.
    """

    def __init__(self, name: str, order: Order, lab: Lab, slots: threading.Semaphore) -> None:
        super().__init__(name=name, daemon=True)
        self.found: list[Checked] = []
        self._order, self._lab, self._slots = order, lab, slots
        self._until, self._is_over = math.inf, False
        self._bench: Workbench | None = None

    def run(self) -> None:
        with self._slots:
            if self._is_over:
                return
            self._until = time.monotonic() + self._order.timeout_s
            _log.info(f"{self.name}: connecting")
            try:
                self._bench = open_workbench(self._lab, self._order)
                for check in visit(self._bench, self.name, self._order):
                    self._add(check)
            except Exception as error:  # a thread has nobody else to tell
                text = f"{type(error).__name__}: {error}"
                advice = "a bug of the harness, or of this lab's files: please report it"
                self._add(Checked("device", self.name, "doctor", "fail", text, advice))
            finally:
                # also what was started since somebody else closed it
                self._close()

    def _add(self, check: Checked) -> None:
        if not self._is_over:
            self.found.append(check)
            _log.info(f"{self.name}: {check.name}")

    @property
    def is_over(self) -> bool:
        return self._is_over or not self.is_alive()

    def give_up_if_late(self) -> None:
        """Give it up where its time is over, and let another one begin."""
        if not self.is_over and time.monotonic() >= self._until:
            text = f"it did not come to an end within {self._order.timeout_s:g} s and was given up"
            advice = f"reboot it; `qnn-harness devices heal {self.name}` does so"
            title = "deadline" if self.found else REACHABLE
            self._add(Checked("device", self.name, title, "fail", text, advice))
            self._is_over = True
            self._slots.release()

    def end(self) -> None:
        """Ends what it has started, if it was given up or interrupted."""
        self._is_over = True
        self._close()

    def _close(self) -> None:
        bench, self._bench = self._bench, None
        if bench is not None:
            with contextlib.suppress(Exception):
                bench.close()


def visits(order: Order, lab: Lab, names: Iterable[str]) -> Iterator[Checked]:
    """What visits to several devices find, a few at the same time: of each together, in order."""
    slots = threading.Semaphore(_AT_ONCE)
    every = [Visit(name, order, lab, slots) for name in names]
    try:
        for one in every:
            one.start()
        for one in every:
            while not one.is_over:
                one.join(_LOOK_S)
                for each in every:
                    each.give_up_if_late()
            yield from one.found
    finally:
        ending = [threading.Thread(target=one.end, daemon=True) for one in every]
        for thread in ending:
            thread.start()
        until = time.monotonic() + _END_S
        # a visit whose device went away comes to its end, too
        for thread in (*ending, *(one for one in every if one.ident is not None)):
            thread.join(max(0.0, until - time.monotonic()))
