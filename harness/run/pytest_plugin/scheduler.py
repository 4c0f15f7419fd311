"""Which worker of pytest-xdist runs what: a worker has its devices to itself, and none waits."""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import pytest

from harness.run.pytest_plugin.pytest_internals import collection_difference
from harness.run.scheduling.allotment import Allotment, FarmDevice
from harness.run.scheduling.scheduling import Waiting

_log = logging.getLogger(__name__)
_FEW: Final = 2
"""A worker with at most so many plain tests gets more: it begins one when it knows the next."""
_USUAL_S: Final = 1.0
_LEAST_S: Final = 0.001


CaseNeeds = tuple[str, str, Sequence[str]]
"""What a case's name begins with, what it wants there, and the kinds of devices it fits."""


class _What(Enum):
    PLAIN, CASE, PAUSE = range(3)


@dataclass
class _Load:
    """What a worker was given and has not finished, in order, and the devices that it holds.

    `collected` are the tests that it found, None before it has. `case` is the case that it runs on
    `device`.
    """

    tests: list[tuple[int, _What]] = field(default_factory=list)
    devices: list[FarmDevice] = field(default_factory=list)
    collected: list[str] | None = None
    case: Waiting | None = None
    device: FarmDevice | None = None

    @property
    def plain(self) -> list[int]:
        return [number for number, what in self.tests if what is _What.PLAIN]


class ByDevice:
    """Gives each case to a worker that holds a device for it, and any other test as `--dist` says.

    A scheduler as `xdist.scheduler.protocol` has them; tests are told by their numbers in the
    collection. `Allotment` says which case a device is given, once it is free. A worker begins a
    test only when it knows the next one. So each case is sent twice, and the second time it only
    waits (`Messages.is_pause`).
    """

    def __init__(
        self,
        config: pytest.Config,
        workers: int,
        cases: Mapping[str, CaseNeeds],
        *,
        kinds: Callable[[], Mapping[str, str]] = dict,
        earlier: Callable[[], Mapping[str, float]] = dict,
        paces: Callable[[], Mapping[str, float]] = dict,
        bind: Callable[[str, str], None] = lambda node_id, device: None,
        is_taken: Callable[[str], bool] = lambda device: False,
        is_lent: Callable[[str], bool] = lambda device: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cases` has what workers told by node id, before `schedule`.

        `kinds` has the kind of each device, by default the device itself; `earlier` how long cases
        took before on a usual one, `paces` what is known of the others, as `Paces` have it. `bind`
        is told the device of each case before it is sent. `is_taken` tells whether another session
        has a device, `is_lent` whether a person has one or asks for it: no worker waits for that as
        long as there are others.
        """
        self.config = config  # pytest-rerunfailures looks for it, too
        self._workers = workers
        self._cases = cases
        self._kinds, self._earlier, self._bind, self._paces = kinds, earlier, bind, paces
        self._devices = Allotment(is_taken=is_taken, is_lent=is_lent, clock=clock)
        self._names: list[str] | None = None
        self._numbers: dict[str, int] = {}
        self._loads: dict[Any, _Load] = {}
        self._left: dict[str, list[int]] = {}
        self._returned = set[int]()
        self._arrived = set[Any]()

    @property
    def nodes(self) -> list[Any]:
        return list(self._loads)

    @property
    def _collected(self) -> dict[Any, list[str]]:
        loads = self._loads.items()
        return {node: load.collected for node, load in loads if load.collected is not None}

    @property
    def _all_came(self) -> bool:
        return len(self._arrived) >= self._workers

    @property
    def collection_is_completed(self) -> bool:
        """Whether tests can be given: cases to the first worker that knows them, as each has
        devices of its own; other tests when as many workers as there should be have collected.
        """
        enough = 1 if self._cases else self._workers
        return self._names is not None or len(self._collected) >= enough

    @property
    def tests_finished(self) -> bool:
        over = all(load.case is None and len(load.plain) < 2 for load in self._loads.values())
        waits = self._left or self._devices.waiting
        return self.collection_is_completed and not waits and over

    @property
    def has_pending(self) -> bool:
        at_work = any(load.case or load.plain for load in self._loads.values())
        return bool(self._left or self._devices.waiting or at_work)

    def add_node(self, node: Any) -> None:
        """A worker that is about to collect."""
        self._loads[node] = _Load()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """What a worker collected; one that comes when tests are given must find the same."""
        is_replacement = self._all_came
        self._arrived.add(node)
        if self._names is None:
            self._loads[node].collected = list(collection)
        elif list(collection) == self._names:
            self._loads[node].collected = self._names
        else:
            if is_replacement:
                said = f"worker {node.gateway.id} collected other tests than those before it"
                _log.warning(said)
            else:
                self._report_difference(self._names, "the first", node, collection)
            node.shutdown()

    def remove_node(self, node: Any) -> str | None:
        """Takes back what a worker was given; returns the test in which it died, if there is one.

        That test is only run again by `mark_test_pending`. Raises KeyError for an unknown worker.
        """
        load = self._loads.pop(node)
        self._devices.let_go(load.devices)
        if self._names is None:
            return None
        case, plain = load.case, load.plain
        if plain:
            if case is not None:  # which it had not begun
                self._devices.add(case)
            self._take_back(plain[1:])
            return self._names[plain[0]]
        self._give_all()
        if case is None:
            return None
        self._returned.discard(case.case)
        self._devices.stopped(case)
        return self._names[case.case]

    def mark_test_pending(self, item: str) -> None:
        """Has a test run again whose worker died in it."""
        number = self._numbers[item]
        if item in self._cases:
            self._devices.go_on(number)
            self._give_all()
        elif not any(number in tests for tests in self._left.values()) and not any(
            number in load.plain for load in self._loads.values()
        ):
            self._take_back([number])

    def mark_test_complete(self, node: Any, item_index: int | str, duration: float = 0) -> None:
        """A worker has finished a test, or a pause, or tells something (`tell_scheduler`)."""
        if isinstance(item_index, str):
            self._was_told(*item_index.split(" ", 1))
            return
        load = self._loads[node]
        at = next(at for at, (number, _) in enumerate(load.tests) if number == item_index)
        _, what = load.tests.pop(at)
        if what is _What.CASE:
            if load.device is not None:
                self._devices.finished(load.device, item_index, duration)
            if load.case is not None and item_index in self._returned:
                self._returned.remove(item_index)
                self._devices.add(load.case)
            load.case = None
        if what is not _What.PAUSE:
            self._give(node)
            self._give_all()

    def _was_told(self, what: str, name: str) -> None:
        if what == "returned":
            self._returned.add(self._numbers[name])
            return
        self._devices.stands(name, what)
        self._give_all()

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        """For schedulers that take tests back from a worker; this one does not."""
        raise NotImplementedError

    def schedule(self) -> None:
        """Gives work to workers that have collected: to all for the first time, or to new ones."""
        if self._names is None:
            if not self._all_collected_the_same():
                return
            self._names = next(iter(self._collected.values()))
            self._numbers = {name: number for number, name in enumerate(self._names)}
            self._take_all(self._names)
        for node in self._collected:  # who is there is known before anybody is given a case
            load = self._loads[node]
            if not load.devices and (device := self._devices.take_free()) is not None:
                load.devices.append(device)
        for _ in range(2):  # two plain tests at first, where there are as many
            self._give_all()

    def gave_up(self, node_id: str, device: str) -> bool:
        """A worker gave up a device; whether a device that shares its case may take that.

        It does so when the worker has told all (`give_back`). Until then no device gets the case.
        """
        load = next((one for one in self._loads.values() if _named(device, one.devices)), None)
        case = load.case if load else None
        own = case is not None and case.case == self._numbers.get(node_id)
        return self._devices.give_up(device, case if own else None)

    def cannot(self, node_id: str, device: str) -> bool:
        """A device says that it cannot do what a case is about; whether one of another kind may.

        That takes it as after `gave_up`.
        """
        on_it = (one for one in self._loads.values() if one.device and one.device.name == device)
        case = next((one.case for one in on_it), None)
        if case is None or case.case != self._numbers[node_id]:
            return False
        return self._devices.cannot(device, case)

    def give_back(self, node_id: str) -> None:
        """Has a case go on elsewhere, as `gave_up` or `cannot` said."""
        if self._devices.go_on(self._numbers[node_id]):
            self._give_all()

    def _take_all(self, names: Sequence[str]) -> None:
        # without cases nobody need have a lab
        kinds, earlier = (self._kinds(), self._earlier()) if self._cases else ({}, {})
        paces = self._paces() if self._cases else {}
        like: dict[str, list[str]] = {}
        for device, kind in kinds.items():
            like.setdefault(kind, []).append(device)
        known = [earlier[name] for name in self._cases if name in earlier]
        usual_s = statistics.median(known) if known else _USUAL_S
        plain, seen = [], set[str]()
        for number, name in enumerate(names):
            if name not in self._cases:
                plain.append(number)
                continue
            _, wants, needs = self._cases[name]
            for kind in set(needs) - seen:
                for device in like.get(kind, [kind]):
                    self._devices.know(device, kind, paces.get(device))
            seen.update(needs)
            seconds = max(_LEAST_S, earlier.get(name, usual_s))
            self._devices.add(Waiting(number, tuple(needs), seconds, wants))
        self._left = self._together(plain)
        if self.config.getoption("loadscopereorder", True):
            self._left = dict(sorted(self._left.items(), key=lambda unit: -len(unit[1])))

    def _together(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        assert self._names is not None
        found: dict[str, list[int]] = {}
        for number in numbers:
            scope = scope_of(self._names[number], self.config.option.dist)
            found.setdefault(scope, []).append(number)
        return found

    def _take_back(self, numbers: Iterable[int]) -> None:
        for scope, tests in self._together(numbers).items():
            self._left.setdefault(scope, []).extend(tests)
        self._give_all()

    def _give_all(self) -> None:
        if self._left or self._devices.waiting or not self._cases:
            for node in self.nodes:
                self._give(node)

    def _give(self, node: Any) -> None:
        # one that takes a dead one's place has its turn when it has collected
        load = self._loads[node]
        if node.shutting_down or load.collected is None:
            return
        if load.case is not None or len(load.plain) > _FEW:
            return
        found = None
        if self._devices.waiting and len(load.plain) < 2:
            # who collects still is to have a device, too
            found = self._devices.next_for(load.devices, may_add=self._all_came)
        if found is not None:
            assert self._names is not None
            load.device, load.case = found
            number = load.case.case
            self._bind(self._names[number], load.device.name)
            self._send(node, [(number, _What.CASE), (number, _What.PAUSE)])
        elif self._left:
            scope = next(iter(self._left))
            self._send(node, [(number, _What.PLAIN) for number in self._left.pop(scope)])
        elif not self._cases:
            node.shutdown()  # no case can come back

    def _send(self, node: Any, tests: list[tuple[int, _What]]) -> None:
        self._loads[node].tests += tests
        # That a worker died is told behind what it still said. Then all that it was given, this
        # too, is given to another.
        with contextlib.suppress(OSError):
            node.send_runtest_some([number for number, _ in tests])

    def _all_collected_the_same(self) -> bool:
        (first, names), *others = self._collected.items()
        differ = [one for one in others if one[1] != names]
        for node, found in differ:
            self._report_difference(names, first.gateway.id, node, found)
        return not differ

    def _report_difference(
        self, names: Sequence[str], whose: str, node: Any, found: Sequence[str]
    ) -> None:
        text = collection_difference(names, found, whose, node.gateway.id)
        report = pytest.CollectReport(node.gateway.id, "failed", text, [])
        self.config.hook.pytest_collectreport(report=report)


def _named(name: str, devices: Iterable[FarmDevice]) -> bool:
    return any(one.name == name for one in devices)


def scope_of(node_id: str, dist: str) -> str:
    """The tests with which a test without a device stays together, for a value of `--dist`."""
    match dist:
        case "loadfile":
            return node_id.partition("::")[0]
        case "loadscope":
            return node_id.partition("[")[0].rpartition("::")[0]
    return node_id
