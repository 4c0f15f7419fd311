"""Which worker of pytest-xdist runs what: a worker has its devices to itself, and none waits."""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

import pytest

from harness.farm.scheduling import Scheduler, Waiting
from harness.pytest_plugin.pytest_internals import collection_difference

_log = logging.getLogger(__name__)
_FEW: Final = 2
"""A worker with as many plain tests or fewer gets more: it begins one when it knows the next."""
_LOOK_AGAIN_S: Final = 60.0
"""So long a device that was given up gets no case that another one could run."""
_USUAL_S: Final = 1.0
_LEAST_S: Final = 0.001


Told = tuple[str, str, Sequence[str]]
"""Of a case: what its name begins with, what it wants there, and the kinds of devices it fits."""


class _What(Enum):
    PLAIN, CASE, PAUSE = range(3)


@dataclass
class _Load:
    """What a worker was given and has not finished, in order, and the devices that it holds.

    `case` is the one that it runs, on `device`.
    """

    tests: list[tuple[int, _What]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    case: Waiting | None = None
    device: str = ""

    @property
    def plain(self) -> list[int]:
        """The tests without a device."""
        return [number for number, what in self.tests if what is _What.PLAIN]


class ByDevice:
    """Gives each case to a worker that holds a device for it, and any other test as `--dist` says.

    A scheduler as `xdist.scheduler.protocol` has them; tests are told by their numbers in the
    collection. `Scheduler` says which case a device is given when it is free, and not before: a
    worker begins a test when it knows the next, so that each case is sent twice, and the second
    time it only waits (`Messages.is_pause`). A worker takes a device for its life, and another one
    if nobody has that and its own have nothing to do.
    """

    def __init__(
        self,
        config: pytest.Config,
        workers: int,
        cases: Mapping[str, Told],
        *,
        kinds: Callable[[], Mapping[str, str]] = dict,
        earlier: Callable[[], Mapping[str, float]] = dict,
        bind: Callable[[str, str], None] = lambda node_id, device: None,
        is_taken: Callable[[str], bool] = lambda device: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cases` has what workers told by node id, before `schedule`.

        `kinds` has by device what it is, itself by default; `earlier` how long cases took before;
        `bind` is told the device of each case before it is sent; `is_taken` tells whether another
        session has a device: no worker waits for that as long as there are others.
        """
        self.config = config  # pytest-rerunfailures looks for it, too
        self._workers = workers
        self._cases = cases
        self._kinds_now, self._earlier, self._bind, self._clock = kinds, earlier, bind, clock
        self._is_taken = is_taken
        self._names: list[str] | None = None
        self._numbers: dict[str, int] = {}
        self._collected: dict[Any, list[str]] = {}
        self._loads: dict[Any, _Load] = {}
        self._left: dict[str, list[int]] = {}
        self._farm = Scheduler(lambda needs, kind: kind in needs)  # type: ignore[operator]
        self._kinds: dict[str, str] = {}  # of the devices that cases can run on
        self._joined: set[str] = set()
        self._out: dict[str, float] = {}  # devices that were given up, and when to try them again
        self._stopped: dict[int, Waiting] = {}  # what a dead worker or a bad device was at

    @property
    def nodes(self) -> list[Any]:
        """The workers."""
        return list(self._loads)

    @property
    def collection_is_completed(self) -> bool:
        """Whether as many workers as there should be have collected."""
        return self._names is not None or len(self._collected) >= self._workers

    @property
    def tests_finished(self) -> bool:
        """Whether workers can be told that what they have is all."""
        over = all(load.case is None and len(load.plain) < 2 for load in self._loads.values())
        return self.collection_is_completed and not self._left and not self._farm.waiting and over

    @property
    def has_pending(self) -> bool:
        """Whether a test is not finished."""
        at_work = any(load.case or load.plain for load in self._loads.values())
        return bool(self._left or self._farm.waiting or at_work)

    def add_node(self, node: Any) -> None:
        """A worker that is about to collect."""
        self._loads[node] = _Load()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """What a worker collected; one that takes another's place must find the same."""
        if self._names is not None and list(collection) != self._names:
            _log.warning(f"worker {node.gateway.id} collected other tests than those before it")
            node.shutdown()
            return
        self._collected[node] = list(collection)

    def remove_node(self, node: Any) -> str | None:
        """Takes back what a worker was given, and tells which test it died in, if in one.

        That one is not run again but for `mark_test_pending`. Raises KeyError for an unknown one.
        """
        load = self._loads.pop(node)
        self._collected.pop(node, None)  # who died before all have collected does not count
        for device in load.devices:
            self._leave(device)
            self._out.pop(device, None)
        if self._names is None:
            return None
        case, plain = load.case, load.plain
        if plain:
            if case is not None:  # which it had not begun
                self._farm.add(case)
            self._take_back(plain[1:])
            return self._names[plain[0]]
        self._give_all()
        if case is None:
            return None
        self._stopped[case.case] = case
        return self._names[case.case]

    def mark_test_pending(self, item: str) -> None:
        """Has a test run again whose worker died in it."""
        number = self._numbers[item]
        if item in self._cases:
            if (case := self._stopped.pop(number, None)) is not None:
                self._farm.add(case)
            self._give_all()
        elif not any(number in tests for tests in self._left.values()) and not any(
            number in load.plain for load in self._loads.values()
        ):
            self._take_back([number])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """A worker has finished a test, or a pause."""
        del duration
        load = self._loads[node]
        at = next(at for at, (number, _) in enumerate(load.tests) if number == item_index)
        _, what = load.tests.pop(at)
        if what is _What.CASE:
            if load.device in self._joined:
                self._farm.finished(load.device, item_index)
            load.case = None
        if what is not _What.PAUSE:
            self._give(node)
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
            if not self._loads[node].devices and (device := self._free_device()) is not None:
                self._join(self._loads[node], device)
        for _ in range(2):  # two plain tests at first, where there are as many
            self._give_all()

    def gave_up(self, node_id: str, device: str) -> bool:
        """A worker gave up a device and the case on it; whether one that shares it may take that.

        It does when the worker has told all (`give_back`). Until then no device gets it.
        """
        load = next((one for one in self._loads.values() if device in one.devices), None)
        case = load.case if load else None
        self._leave(device)
        self._out[device] = self._clock() + _LOOK_AGAIN_S
        if case is None or case.case != self._numbers.get(node_id):
            return False
        again = replace(case, not_on=case.not_on | {device})
        usable = (name for name in self._kinds if name in self._joined or not self._holds(name))
        if not any(
            self._kinds[name] in again.needs and name not in again.not_on  # type: ignore[operator]
            for name in usable
        ):
            return False
        self._stopped[case.case] = again
        return True

    def cannot(self, node_id: str, device: str) -> bool:
        """A device says that it cannot do what a case is about; whether one of another kind may.

        That takes it as after `gave_up`.
        """
        number = self._numbers[node_id]
        case = next((one.case for one in self._loads.values() if one.device == device), None)
        if case is None or case.case != number:
            return False
        needs = tuple(kind for kind in case.needs if kind != self._kinds[device])  # type: ignore[attr-defined]
        if not any(kind in needs for name, kind in self._kinds.items() if name not in case.not_on):
            return False
        self._stopped[number] = replace(case, needs=needs)
        return True

    def give_back(self, node_id: str) -> None:
        """Has a case go on elsewhere, as `gave_up` or `cannot` said."""
        case = self._stopped.pop(self._numbers[node_id], None)
        if case is not None:
            self._farm.add(case)
            self._give_all()

    def _take_all(self, names: Sequence[str]) -> None:
        # without cases nobody need have a lab
        kinds, earlier = (self._kinds_now(), self._earlier()) if self._cases else ({}, {})
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
                self._kinds.update(dict.fromkeys(like.get(kind, [kind]), kind))
            seen.update(needs)
            seconds = max(_LEAST_S, earlier.get(name, usual_s))
            self._farm.add(Waiting(number, tuple(needs), seconds, wants))
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
        if self._left or self._farm.waiting or not self._cases:
            for node in self.nodes:
                self._give(node)

    def _give(self, node: Any) -> None:
        # one that takes a dead one's place has its turn when it has collected
        if node.shutting_down or node not in self._collected:
            return
        load = self._loads[node]
        if load.case is not None or len(load.plain) > _FEW:
            return
        if self._farm.waiting and len(load.plain) < 2 and self._take_case(load):
            assert self._names is not None
            assert load.case is not None
            number = load.case.case
            self._bind(self._names[number], load.device)
            self._send(node, [(number, _What.CASE), (number, _What.PAUSE)])
        elif self._left:
            scope = next(iter(self._left))
            self._send(node, [(number, _What.PLAIN) for number in self._left.pop(scope)])
        elif not self._cases:
            node.shutdown()  # no case can come back

    def _take_case(self, load: _Load) -> bool:
        """Finds a worker its next case: for a device that it has, else for one that nobody has."""
        if any(self._take_case_for(load, one) for one in load.devices if one in self._joined):
            return True
        if (device := self._free_device()) is not None:
            self._join(load, device)
            return self._take_case_for(load, device)
        for device in load.devices:
            if device in self._out and self._is_worth_a_try(device):
                self._join(load, device)
                if self._take_case_for(load, device):
                    return True
        return False

    def _free_device(self) -> str | None:
        """The device that nobody has and that most work waits for, if there is some.

        One that another session has only if none of ours can run a case that waits.
        """
        work = {
            device: self._farm.work_for(device, kind) / (1 + self._count(kind))
            for device, kind in self._kinds.items()
            if not self._holds(device)
        }
        found = sorted((one for one in work if work[one] > 0), key=lambda one: -work[one])
        free = next((device for device in found if not self._is_taken(device)), None)
        if free is not None:
            return free
        return next((device for device in found if self._is_wanted(device)), None)

    def _is_worth_a_try(self, device: str) -> bool:
        """Whether a device that was given up gets a case: it may be well, or none else can."""
        kind = self._kinds[device]
        if self._clock() >= self._out[device]:
            return self._farm.work_for(device, kind) > 0
        return self._is_wanted(device)

    def _is_wanted(self, device: str) -> bool:
        """Whether a case waits that it can run, and none of our devices."""
        kind, cases = self._kinds[device], self._farm.without_device()
        return any(device not in one.not_on and kind in one.needs for one in cases)  # type: ignore[operator]

    def _join(self, load: _Load, device: str) -> None:
        self._out.pop(device, None)
        if device not in load.devices:
            load.devices.append(device)
        self._joined.add(device)
        self._farm.join(device, self._kinds[device])

    def _take_case_for(self, load: _Load, device: str) -> bool:
        load.case, load.device = self._farm.next(device), device
        return load.case is not None

    def _leave(self, device: str) -> None:
        if device in self._joined:
            self._joined.remove(device)
            self._farm.leave(device)

    def _holds(self, device: str) -> bool:
        return any(device in load.devices for load in self._loads.values())

    def _count(self, kind: str) -> int:
        return sum(self._kinds[device] == kind for device in self._joined)

    def _send(self, node: Any, tests: list[tuple[int, _What]]) -> None:
        self._loads[node].tests += tests
        # That a worker died is told behind what it still said. Then all that it was given, this
        # too, is given to another.
        with contextlib.suppress(OSError):
            node.send_runtest_some([number for number, _ in tests])

    def _all_collected_the_same(self) -> bool:
        (first, names), *others = self._collected.items()
        differ = False
        for node, found in others:
            text = collection_difference(names, found, first.gateway.id, node.gateway.id)
            if text:
                differ = True
                report = pytest.CollectReport(node.gateway.id, "failed", text, [])
                self.config.hook.pytest_collectreport(report=report)
        return not differ


def scope_of(node_id: str, dist: str) -> str:
    """With which others a test without a device stays together, for a value of `--dist`."""
    match dist:
        case "loadfile":
            return node_id.partition("::")[0]
        case "loadscope":
            return node_id.partition("[")[0].rpartition("::")[0]
    return node_id
