"""The order in which workers of pytest-xdist get cases, and how long a run takes with it."""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings, strategies as st
from xdist.scheduler import WorkStealingScheduling

from harness.plugin.case_order import Share, deal, ordered
from tests.properties import reached, reaches

DEVICES = ("a", "b", "c", "d")
EIGHT = tuple("abcdefgh")
CASES = 48


def in_order(shares: Sequence[Share]) -> list[int]:
    return [number for share in shares for number in share.tests]


def test_few_devices_come_first_then_long_cases_then_the_order_of_the_file() -> None:
    cases = {0: DEVICES, 1: DEVICES, 2: ("a",), 3: DEVICES, 4: ("a", "b"), 5: DEVICES}
    assert ordered(cases, {}) == [2, 4, 0, 1, 3, 5]
    # an unknown length is taken for the median
    assert ordered(cases, {0: 1.0, 3: 9.0, 5: 5.0}) == [2, 4, 3, 1, 5, 0]


def test_each_worker_begins_with_a_long_case_and_has_as_much_to_do_as_the_others() -> None:
    lengths: Mapping[int, float] = {number: float(1 + number) for number in range(40)}
    shares = deal(40, dict.fromkeys(range(40), DEVICES), lengths, 4)
    assert sorted(share.tests[0] for share in shares) == [36, 37, 38, 39]
    for share in shares:
        assert share.tests[::2] == sorted(share.tests[::2], reverse=True)
        assert share.tests[1::2] == sorted(share.tests[1::2])
        assert max(share.tests[1::2]) < min(share.tests[::2])
        assert share.seconds == sum(lengths[number] for number in share.tests)
    assert max(share.seconds for share in shares) < 1.1 * min(share.seconds for share in shares)


def test_cases_of_one_device_go_to_one_worker() -> None:
    cases = {number: (DEVICES[number % 4],) for number in range(40)}
    for share in deal(40, cases, {}, 4):
        assert len({cases[number] for number in share.tests}) == 1


@reaches(0.4)
@settings(deadline=None)
@given(
    devices=st.lists(st.lists(st.sampled_from(DEVICES), unique=True), min_size=8, max_size=30),
    workers=st.integers(1, 4),
    known=st.dictionaries(st.integers(0, 29), st.floats(0, 1e4)),
)
def test_nothing_is_lost_and_other_tests_keep_their_order(
    devices: list[list[str]], workers: int, known: dict[int, float]
) -> None:
    cases = {number: names for number, names in enumerate(devices) if names}
    lengths = {number: length for number, length in known.items() if number in cases}
    shares = deal(len(devices), cases, lengths, workers)
    order = in_order(shares)
    assert sorted(order) == list(range(len(devices)))
    assert order == in_order(deal(len(devices), cases, lengths, workers))
    others = [number for number in order if number not in cases]
    assert others == sorted(others)
    for share in shares:
        placed = [number for number in share.tests if number in cases]
        assert share.tests[: len(placed)] == placed, "other tests come behind"
    if len(cases) > workers:
        reached()


class SimulatedWorker:
    """A worker of pytest-xdist on simulated time; it holds back its last test until a shutdown."""

    def __init__(self, number: int, farm: SimulatedFarm) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.queue: list[int] = []
        self.running: int | None = None
        self.device = ""
        self._farm = farm

    def send_runtest_some(self, tests: Sequence[int]) -> None:
        self.queue += tests

    def send_steal(self, tests: Sequence[int]) -> None:
        kept_tests = [test for test in self.queue if test not in tests]
        stolen = [test for test in self.queue if test in tests]
        self.queue = kept_tests
        self._farm.messages.append(
            lambda: self._farm.scheduler.remove_pending_tests_from_node(self, stolen)
        )

    def shutdown(self) -> None:
        self.shutting_down = True


class SimulatedFarm:
    """A run of cases with pytest-xdist's own scheduler, one worker for each device."""

    def __init__(self, lengths: Mapping[int, float], devices: Sequence[str]) -> None:
        self._lengths, self._devices = lengths, devices
        self.messages: list[Callable[[], None]] = []
        config: Any = SimpleNamespace(getvalue=lambda _: ["popen"] * len(devices))
        self.scheduler: Any = WorkStealingScheduling(config)

    def run(self, shares: Sequence[Share]) -> tuple[float, list[int]]:
        """Return the time until the last case has ended, and the cases as they started."""
        order = in_order(shares)
        workers = [SimulatedWorker(number, self) for number in range(len(self._devices))]
        for worker in workers:
            self.scheduler.add_node(worker)
            self.scheduler.add_node_collection(worker, [f"case-{number}" for number in order])
        self.scheduler.schedule()
        free, ends = {*self._devices}, list[tuple[float, int]]()
        clock, started = 0.0, list[int]()
        while True:
            while self.messages:
                self.messages.pop(0)()
            for index, worker in enumerate(workers):
                if worker.running is None and len(worker.queue) > (not worker.shutting_down):
                    worker.running = worker.queue.pop(0)
                    case = order[worker.running]
                    worker.device = worker.device if worker.device in free else min(free)
                    free.remove(worker.device)
                    started.append(case)
                    heapq.heappush(ends, (clock + self._lengths[case], index))
            if not ends:
                return clock, started
            clock, index = heapq.heappop(ends)
            worker = workers[index]
            test, worker.running = worker.running, None
            free.add(worker.device)
            self.scheduler.mark_test_complete(worker, test)


def test_devices_are_used_well_once_lengths_are_known() -> None:
    """Of 40 farms of eight equal devices, in parts of the least possible time."""
    times = []
    for seed in range(40):
        source = random.Random(seed)
        lengths = {n: math.exp(source.uniform(math.log(0.2), math.log(20))) for n in range(CASES)}
        shares = deal(CASES, dict.fromkeys(lengths, EIGHT), lengths, len(EIGHT))
        time, started = SimulatedFarm(lengths, EIGHT).run(shares)
        assert sorted(started) == [*lengths]
        times.append(time / max(sum(lengths.values()) / len(EIGHT), max(lengths.values())))
    assert statistics.median(times) < 1.06
