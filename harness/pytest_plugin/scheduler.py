"""Which worker of pytest-xdist runs what: a worker has its devices to itself."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from xdist.report import report_collection_diff

_log = logging.getLogger(__name__)
_FEW = 2
"""A worker with as many tests or fewer is given more: it begins one when it knows the next."""


@dataclass
class _Load:
    """What a worker was given and has not finished, in order; and the devices that it may hold."""

    tests: list[int] = field(default_factory=list)
    devices: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Scope:
    """What stays together on one worker: the cases of a device, or plain tests of one name."""

    device: str = ""
    name: str = ""


class ByDevice:
    """Gives all cases of a device to one worker, and any other test as `--dist` says.

    A scheduler as `xdist.scheduler.protocol` has them; tests are told by their numbers in the
    collection. A worker begins its last test when it is told that it is the last: all are told
    when none has more than one left. So any of them can take over a case until then (`move`).
    """

    def __init__(self, config: pytest.Config, workers: int, devices: Mapping[str, str]) -> None:
        """`devices` has the device of each case by its node id; it is filled before `schedule`."""
        self.config = config  # pytest-rerunfailures looks for it, too
        self._workers = workers
        self._devices = devices
        self._moved: dict[int, str] = {}
        self._names: list[str] | None = None
        self._collected: dict[Any, list[str]] = {}
        self._loads: dict[Any, _Load] = {}
        self._left: dict[_Scope, list[int]] = {}

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
        last = all(len(load.tests) < 2 for load in self._loads.values())
        return self.collection_is_completed and not self._left and last

    @property
    def has_pending(self) -> bool:
        """Whether a test is not finished."""
        return bool(self._left) or any(load.tests for load in self._loads.values())

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
        tests = self._loads.pop(node).tests
        self._collected.pop(node, None)  # who died before all have collected does not count
        if self._names is None or not tests:
            return None
        died_in, *others = tests
        self._take_back(others)
        return self._names[died_in]

    def mark_test_pending(self, item: str) -> None:
        """Has a test run again whose worker died in it; where the device is, if it is a case."""
        assert self._names is not None
        number = self._names.index(item)
        if any(number in tests for tests in self._left.values()):
            return
        if any(number in load.tests for load in self._loads.values()):
            return
        device = self._scope(number).device
        for node, load in self._loads.items():
            if device and device in load.devices and not node.shutting_down:
                self._send(node, [number])
                return
        self._take_back([number])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """A worker has finished a test."""
        del duration
        self._loads[node].tests.remove(item_index)
        self._give(node)

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        """For schedulers that take tests back from a worker; this one does not."""
        raise NotImplementedError

    def schedule(self) -> None:
        """Gives work to workers that have collected: to all for the first time, or to new ones."""
        if self._names is None:
            if not self._all_collected_the_same():
                return
            self._names = next(iter(self._collected.values()))
            self._left = self._together(range(len(self._names)))
            if self.config.getoption("loadscopereorder", True):
                largest = sorted(self._left.items(), key=lambda unit: -len(unit[1]))
                self._left = dict(largest)
        for node in (*self.nodes, *self.nodes):  # two at first, where there are as many
            self._give(node)

    def worker_with(self, devices: Collection[str]) -> tuple[Any, str] | None:
        """The least busy worker that has one of these devices and takes cases, and the device."""
        fitting = [
            (len(load.tests), index, node, device)
            for index, (node, load) in enumerate(self._loads.items())
            if not node.shutting_down
            for device in sorted(load.devices.intersection(devices))
        ]
        if not fitting:
            return None
        _, _, node, device = min(fitting, key=lambda found: found[:2])
        return node, device

    def move(self, node_id: str, node: Any, device: str) -> None:
        """Has a worker run one case more, on a device that it has."""
        assert self._names is not None
        number = self._names.index(node_id)
        self._moved[number] = device
        self._send(node, [number])

    def _scope(self, number: int) -> _Scope:
        assert self._names is not None
        name = self._names[number]
        device = self._moved.get(number) or self._devices.get(name)
        return _Scope(device) if device else _Scope(name=scope_of(name, self.config.option.dist))

    def _together(self, numbers: Iterable[int]) -> dict[_Scope, list[int]]:
        found: dict[_Scope, list[int]] = {}
        for number in numbers:
            found.setdefault(self._scope(number), []).append(number)
        return found

    def _take_back(self, numbers: Iterable[int]) -> None:
        for scope, tests in self._together(numbers).items():
            self._left.setdefault(scope, []).extend(tests)
        for node in self.nodes:
            self._give(node)

    def _give(self, node: Any) -> None:
        # one that takes a dead one's place has its turn when it has collected
        if node.shutting_down or node not in self._collected:
            return
        if not self._left:
            if not self._devices:
                node.shutdown()  # no case can move to it
        elif len(self._loads[node].tests) <= _FEW:
            scope = next(iter(self._left))
            if scope.device:
                self._loads[node].devices.add(scope.device)
            self._send(node, self._left.pop(scope))

    def _send(self, node: Any, numbers: list[int]) -> None:
        self._loads[node].tests += numbers
        # That a worker died is told behind what it still said. Then all that it was given, this
        # too, is given to another.
        with contextlib.suppress(OSError):
            node.send_runtest_some(numbers)

    def _all_collected_the_same(self) -> bool:
        (first, names), *others = self._collected.items()
        differ = False
        for node, found in others:
            text = report_collection_diff(names, found, first.gateway.id, node.gateway.id)
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
