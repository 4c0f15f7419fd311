"""The order in which workers of pytest-xdist get cases, and how long a run takes with it."""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from xdist.scheduler import WorkStealingScheduling

from harness.plugin.scheduling import Forecast, Share, deal, learn_paces, ordered
from tests.properties import reached, reaches

DEVICES = ("a", "b", "c", "d")
EIGHT = tuple("abcdefgh")
CASES = 48
UNSHARED = Path("/none/such")


def in_order(shares: Sequence[Share]) -> list[int]:
    return [number for share in shares for number in share.tests]


def test_few_devices_come_first_then_long_cases_then_the_order_of_the_file() -> None:
    cases = {0: DEVICES, 1: DEVICES, 2: ("a",), 3: DEVICES, 4: ("a", "b"), 5: DEVICES}
    assert ordered(cases, {}) == [2, 4, 0, 1, 3, 5]
    # an unknown length is taken for the median
    assert ordered(cases, {0: 1.0, 3: 9.0, 5: 5.0}) == [2, 4, 3, 1, 5, 0]


def test_each_worker_begins_with_a_long_case_and_has_as_much_to_do_as_the_others() -> None:
    lengths: Mapping[int, float] = {number: float(1 + number) for number in range(40)}
    shares = deal(40, dict.fromkeys(range(40), DEVICES), lengths, {}, 4)
    assert sorted(share.tests[0] for share in shares) == [36, 37, 38, 39]
    for share in shares:
        assert share.tests[::2] == sorted(share.tests[::2], reverse=True)
        assert share.tests[1::2] == sorted(share.tests[1::2])
        assert max(share.tests[1::2]) < min(share.tests[::2])
        assert share.seconds == sum(lengths[number] for number in share.tests)
    assert max(share.seconds for share in shares) < 1.1 * min(share.seconds for share in shares)


def test_cases_of_one_device_go_to_one_worker() -> None:
    cases = {number: (DEVICES[number % 4],) for number in range(40)}
    for share in deal(40, cases, {}, {}, 4):
        assert {cases[number] for number in share.tests} == {(share.device,)}


def test_paces_come_from_cases_that_several_devices_have_run() -> None:
    lengths, paces = learn_paces(
        {
            "one": {"fast": 1.0, "slow": 3.0},
            "two": {"fast": 4.0, "slow": 12.0},
            "outlier": {"fast": 5.0, "slow": 5.0},
            "three": {"slow": 6.0},
            "four": {"other": 7.0},
            "nothing": {"other": 0.0},
        },
        {},
    )
    assert math.isclose(paces["slow"] / paces["fast"], 3.0)
    assert math.isclose(lengths["two"] / lengths["one"], 4.0)
    assert math.isclose(lengths["three"] / lengths["one"], 2.0)
    assert lengths["four"] == 7.0 / paces["other"]
    assert lengths["nothing"] > 0
    assert learn_paces({}, {}) == ({}, {})
    _, few = learn_paces({"a": {"slow": 9.0}, "b": {"fast": 3.0}}, {})
    assert 1.0 < few["slow"] / few["fast"] < 1.5, "one case tells little"


@reaches(0.4)
@settings(deadline=None)
@given(
    devices=st.lists(st.lists(st.sampled_from(DEVICES), unique=True), min_size=8, max_size=30),
    workers=st.integers(1, 4),
    known=st.dictionaries(st.integers(0, 29), st.floats(0, 1e4)),
    paces=st.dictionaries(st.sampled_from(DEVICES), st.floats(0.01, 100)),
)
def test_nothing_is_lost_and_other_tests_keep_their_order(
    devices: list[list[str]], workers: int, known: dict[int, float], paces: dict[str, float]
) -> None:
    cases = {number: names for number, names in enumerate(devices) if names}
    lengths = {number: length for number, length in known.items() if number in cases}
    shares = deal(len(devices), cases, lengths, paces, workers)
    order = in_order(shares)
    assert sorted(order) == list(range(len(devices)))
    assert order == in_order(deal(len(devices), cases, lengths, paces, workers))
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

    def __init__(
        self, lengths: Mapping[int, float], paces: Mapping[str, float], forecast: Forecast
    ) -> None:
        self._lengths, self._paces, self._forecast = lengths, paces, forecast
        self.messages: list[Callable[[], None]] = []
        config: Any = SimpleNamespace(getvalue=lambda _: ["popen"] * len(paces))
        self.scheduler: Any = WorkStealingScheduling(config)

    def run(self, shares: Sequence[Share]) -> tuple[float, dict[int, dict[str, float]]]:
        """Return the time until the last case has ended, and how long each took on its device."""
        order = in_order(shares)
        homes = {number: share.device for share in shares for number in share.tests}
        workers = [SimulatedWorker(number, self) for number in range(len(self._paces))]
        for worker in workers:
            self.scheduler.add_node(worker)
            self.scheduler.add_node_collection(worker, [f"case-{number}" for number in order])
        self.scheduler.schedule()
        free, ends = {*self._paces}, list[tuple[float, int]]()
        clock, seconds = 0.0, dict[int, dict[str, float]]()
        while True:
            while self.messages:
                self.messages.pop(0)()
            for index, worker in enumerate(workers):
                if worker.running is None and len(worker.queue) > (not worker.shutting_down):
                    case = order[worker.queue[0]]
                    if not self._acquires(worker, str(case), free, worker.device or homes[case]):
                        continue
                    worker.running = worker.queue.pop(0)
                    free.remove(worker.device)
                    taken = self._lengths[case] * self._paces[worker.device]
                    seconds[case] = {worker.device: taken}
                    self._forecast.begin(str(case), worker.device)
                    heapq.heappush(ends, (clock + taken, index))
            if not ends:
                return clock, seconds
            clock, index = heapq.heappop(ends)
            worker = workers[index]
            test, worker.running = worker.running, None
            free.add(worker.device)
            self._forecast.end(str(order[test]), *next(iter(seconds[order[test]].items())))
            self.scheduler.mark_test_complete(worker, test)

    def _acquires(
        self, worker: SimulatedWorker, case: str, free: Collection[str], preferred: str
    ) -> bool:
        names = sorted(self._paces, key=lambda name: (name != preferred, name))
        late = self._forecast.is_late(len(names))
        places: Any = [SimpleNamespace(device=name) for name in names]
        in_use = list[str]()
        for place in self._forecast.in_order(case, places) if late else places:
            if late and self._forecast.waits(case, place.device, in_use, 0.0):
                continue
            if place.device in free:
                worker.device = place.device
                return True
            in_use.append(place.device)
        return False


def times_of_runs(slow: float, *, two_kinds: bool, seed: int) -> list[float]:
    """Return the times of three runs in a row, in parts of the least possible time.

    Of eight devices four are `slow`; the cases take 0.2 to 20 s.
    """
    source = random.Random(seed)
    lengths = {n: math.exp(source.uniform(math.log(0.2), math.log(20))) for n in range(CASES)}
    halves = ["fast"] * 4 + ["slow"] * 4
    source.shuffle(halves)
    kinds = dict(zip(EIGHT, halves, strict=True))
    true_paces = {device: slow if kind == "slow" else 1.0 for device, kind in kinds.items()}
    speed = sum(1 / pace for pace in true_paces.values())
    bound = max(sum(lengths.values()) / speed, max(lengths.values()))
    known: dict[str, dict[str, float]] = {}
    times = []
    for _ in range(3):
        assumed = kinds if two_kinds else dict.fromkeys(EIGHT, "")
        by_name, paces = learn_paces(known, assumed)
        learned = {int(name): length for name, length in by_name.items()}
        shares = deal(CASES, dict.fromkeys(lengths, EIGHT), learned, paces, len(EIGHT))
        forecast = Forecast(
            UNSHARED, dict.fromkeys(map(str, lengths), EIGHT), by_name, paces, assumed
        )
        time, seconds = SimulatedFarm(lengths, true_paces, forecast).run(shares)
        assert len(seconds) == CASES
        for case, taken in seconds.items():
            known.setdefault(str(case), {}).update(taken)
        times.append(time / bound)
    return times


@pytest.mark.parametrize(
    ("slow", "two_kinds", "most"),
    [
        # where each free device takes the next case from one list, a first run takes 1.58
        (3.0, True, (1.55, 1.12, 1.05)),
        (3.0, False, (2.0, 1.6, 1.05)),
        (1.0, True, (1.5, 1.12, 1.05)),
        (1.0, False, (1.45, 1.05, 1.05)),
    ],
)
def test_devices_are_used_well_once_lengths_and_paces_are_known(
    slow: float, two_kinds: bool, most: tuple[float, float, float]
) -> None:
    """In the second run no case has run on two devices: paces are those of kinds, if any."""
    farms = [times_of_runs(slow, two_kinds=two_kinds, seed=seed) for seed in range(40)]
    medians = [statistics.median(times) for times in zip(*farms, strict=True)]
    assert all(time < limit for time, limit in zip(medians, most, strict=True)), medians


@pytest.mark.parametrize(
    ("left", "in_use", "waited_s", "waits"),
    [
        (1, ("fast",), 0.0, True),  # 10 s there, and half a case, beside 30 s here
        (2, ("fast",), 0.0, True),
        (3, ("fast",), 0.0, False),
        (3, ("fast", "other-fast"), 0.0, True),
        (1, (), 0.0, False),
        (1, ("slow",), 0.0, False),
        (1, ("fast",), 30.0, False),  # it would be over by now
    ],
)
def test_near_the_end_a_case_waits_for_a_faster_device(
    left: int, in_use: Sequence[str], waited_s: float, waits: bool
) -> None:
    paces = {"fast": 1.0, "other-fast": 1.0, "slow": 3.0, "mine": 3.0}
    names = [f"case-{number}" for number in range(40)]
    forecast = Forecast(
        UNSHARED, dict.fromkeys(names, tuple(paces)), dict.fromkeys(names, 10.0), paces, {}
    )
    for name in names[left:]:
        forecast.begin(name, "fast")
    assert forecast.waits("case-0", "mine", in_use, waited_s) is waits


def test_workers_tell_each_other_what_they_begin_and_how_long_it_took(tmp_path: Path) -> None:
    cases = {f"case-{number} \n": ("a", "b") for number in range(20)}
    known = cases, {}, {}, {"a": "fast", "b": "slow"}
    forecasts = [Forecast(tmp_path / "shared", *known) for _ in range(2)]
    assert not forecasts[1].is_late(2), "nobody has told anything"
    for case, device in zip(cases, "ab" * 5, strict=False):
        forecasts[0].note(case, device)
        assert not forecasts[1].waits(case, "b", ["a"], 0.0), "nothing is known of the devices"
        forecasts[0].note(case, device, 9.0 if device == "b" else 1.0)
    assert forecasts[1].is_late(2)
    paces = forecasts[1].paces(("a", "b", "other"))
    assert paces["b"] > 2 * paces["a"]
    assert paces["other"] == 1.0


def test_a_device_is_in_use_until_it_has_a_fault(tmp_path: Path) -> None:
    forecasts = [Forecast(tmp_path / "shared", {}, {}, {}, {}) for _ in range(2)]
    in_use = []
    for taken_s in ([], [1.0], [None], []):
        forecasts[0].note("case", "a", *taken_s)
        forecasts[1].is_late(1)
        in_use.append([*forecasts[1].in_use])
    assert in_use == [["a"], ["a"], [], ["a"]]


def test_a_line_that_is_cut_short_is_skipped_and_a_missing_folder_costs_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "shared"
    forecast = Forecast(file, {}, {}, {}, {})
    file.write_text('["cut", "of["a-case", "a"]\n["b-case", "b"]\n["c-case", "')
    forecast.is_late(1)
    assert forecast.in_use == {"b"}
    with file.open("a") as rest:
        rest.write('c"]\n')
    forecast.is_late(1)
    assert forecast.in_use == {"b", "c"}
    elsewhere = Forecast(tmp_path / "missing/shared", {}, {}, {}, {})
    elsewhere.note("case", "a")
    assert elsewhere.is_late(1)
