"""Who runs what under pytest-xdist, with workers that are played here."""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from xdist.scheduler.protocol import Scheduling

from harness.pytest_plugin.scheduler import ByDevice, scope_of
from tests.logged import Logged


class Worker:
    """What xdist's WorkerController is to a scheduler; it runs a test when it knows the next."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.queue: list[int] = []
        self.shutting_down = False
        self.lost = False

    def send_runtest_some(self, numbers: list[int]) -> None:
        if self.lost:
            raise OSError("cannot send (already closed?)")
        self.queue += numbers

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def can_run(self) -> bool:
        return len(self.queue) > (0 if self.shutting_down else 1)


def scheduler(
    names: list[str], devices: dict[str, str], workers: int, dist: str = "load"
) -> tuple[ByDevice, list[Worker]]:
    told: list[Any] = []
    config = SimpleNamespace(
        option=SimpleNamespace(dist=dist),
        getoption=lambda name, default: default,
        hook=SimpleNamespace(pytest_collectreport=lambda report: told.append(report)),
        told=told,
    )
    made = ByDevice(cast(pytest.Config, config), workers, devices)
    nodes = [Worker(f"gw{number}") for number in range(workers)]
    for node in nodes:
        made.add_node(node)
        made.add_node_collection(node, names)
    made.schedule()
    return made, nodes


def test_it_is_what_the_pinned_pytest_xdist_asks_of_a_scheduler() -> None:
    for name, asked in vars(Scheduling).items():
        if name.startswith("_"):
            continue
        ours = getattr(ByDevice, name)
        assert isinstance(ours, property) == isinstance(asked, property), name
        if not isinstance(asked, property):
            found, wanted = (inspect.signature(one).parameters for one in (ours, asked))
            assert [*found] == [*wanted], name
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    needs = [Requirement(text) for text in project["project"]["dependencies"]]
    (pin,) = (need.specifier for need in needs if need.name == "pytest-xdist")
    assert pin.contains(version("pytest-xdist"))
    assert not pin.contains("4.0"), "the protocol may be another one"


CASES = {f"t.py::test_c[{device}-{number}]": device for device in "ab" for number in range(3)}
PLAIN = [f"t.py::test_p[{number}]" for number in range(4)]


def test_all_cases_of_a_device_go_to_one_worker_and_the_last_one_waits() -> None:
    names = [*CASES, *PLAIN]
    made, (first, second) = scheduler(names, CASES, 2)
    assert first.queue[:3] == [0, 1, 2]
    assert second.queue[:3] == [3, 4, 5]
    while first.can_run or second.can_run:
        for node in (first, second):
            if node.can_run:
                made.mark_test_complete(node, node.queue.pop(0))
    assert made.tests_finished
    assert made.has_pending
    assert [len(first.queue), len(second.queue)] == [1, 1]
    assert not first.shutting_down


def test_plain_tests_need_not_wait_for_another_worker() -> None:
    made, nodes = scheduler(PLAIN[:3], {}, 2)
    assert sorted(nodes[0].queue + nodes[1].queue) == [0, 1, 2]
    assert not made.tests_finished
    assert nodes[1].can_run
    made.mark_test_complete(nodes[0], nodes[0].queue.pop(0))
    assert nodes[0].can_run


def test_what_a_dead_worker_had_goes_on_and_a_case_where_its_device_is() -> None:
    made, (first, second) = scheduler([*CASES], CASES, 2)
    made.mark_test_complete(second, second.queue.pop(0))
    first.lost = True
    assert made.remove_node(first) == next(iter(CASES))
    assert second.queue == [4, 5, 1, 2]
    made.mark_test_pending(next(iter(CASES)))
    made.mark_test_pending(next(iter(CASES)))
    assert second.queue == [4, 5, 1, 2, 0]
    assert made.worker_with({"a"}) == (second, "a")
    with pytest.raises(KeyError):
        made.remove_node(first)


def test_a_plain_test_that_kills_its_worker_is_run_again_on_request_only() -> None:
    made, (node,) = scheduler(PLAIN, {}, 1, "loadfile")
    assert made.remove_node(node) == PLAIN[0]
    other = Worker("gw1")
    made.add_node(other)
    made.add_node_collection(other, PLAIN)
    made.schedule()
    assert other.queue == [1, 2, 3]
    made.remove_node(other)
    made.mark_test_pending(PLAIN[1])
    last = Worker("gw2")
    made.add_node(last)
    made.add_node_collection(last, PLAIN)
    made.schedule()
    assert sorted(last.queue) == [1, 2, 3]


def test_a_case_that_moved_stays_with_its_new_device() -> None:
    made, (first, second) = scheduler([*CASES], CASES, 2)
    assert made.worker_with({"b", "c"}) == (second, "b")
    made.move(next(iter(CASES)), second, "b")
    assert second.queue == [3, 4, 5, 0]
    made.remove_node(second)
    assert first.queue == [0, 1, 2]
    made.mark_test_complete(first, first.queue.pop(0))
    assert first.queue == [1, 2, 4, 5, 0]


def test_workers_that_collect_other_tests_get_none(logged: Logged) -> None:
    made, (node,) = scheduler(PLAIN, {}, 1, "loadfile")
    other = Worker("gw1")
    made.add_node(other)
    made.add_node_collection(other, PLAIN[1:])
    assert other.shutting_down
    assert logged.warnings == ["worker gw1 collected other tests than those before it"]
    assert node.queue == [0, 1, 2, 3]
    config: Any = made.config
    unlike = ByDevice(config, 2, {})
    for worker, names in ((Worker("gw0"), PLAIN), (Worker("gw1"), PLAIN[1:])):
        unlike.add_node(worker)
        unlike.add_node_collection(worker, names)
    unlike.schedule()
    assert [report.outcome for report in config.told] == ["failed"]
    assert unlike.tests_finished
    assert not unlike.has_pending


@given(
    cases=st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12),
    workers=st.integers(1, 4),
    events=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12),
)
def test_whoever_dies_no_device_is_shared_and_all_cases_are_run(
    cases: list[str], workers: int, events: list[tuple[int, bool]]
) -> None:
    names = [f"t.py::test_{number}" for number in range(len(cases))]
    devices = {name: device for name, device in zip(names, cases, strict=True) if device}
    made, alive = scheduler(names, devices, workers)
    ran: set[int] = set()
    crashed: set[int] = set()
    script = iter(events)
    for step in range(200):
        if made.tests_finished:
            for node in alive:
                node.shutdown()
        holding = [
            {cases[number] for number in node.queue if cases[number]}
            for node in alive
            if node.queue
        ]
        assert sum(map(len, holding)) == len(set().union(*holding)), "two workers, one device"
        ready = [node for node in alive if node.can_run]
        if not ready:
            break
        which, dies = next(script, (0, False))
        node = ready[which % len(ready)]
        if not dies:
            ran.add(node.queue[0])
            made.mark_test_complete(node, node.queue.pop(0))
            continue
        node.lost = True
        alive.remove(node)
        item = made.remove_node(node)
        assert item == names[node.queue[0]]
        crashed.add(node.queue[0])
        if item in devices:
            made.mark_test_pending(item)
        clone = Worker(f"gw{len(alive) + step}")
        alive.append(clone)
        made.add_node(clone)
        made.add_node_collection(clone, names)
        made.schedule()
    assert not made.has_pending
    assert ran | {number for number in crashed if not cases[number]} == set(range(len(cases)))


@pytest.mark.parametrize(
    ("dist", "scope"),
    [
        ("load", "tests/test_a.py::Class::test_b[x::y]"),
        ("loadfile", "tests/test_a.py"),
        ("loadscope", "tests/test_a.py::Class"),
    ],
)
def test_a_test_without_a_device_stays_with_those_that_dist_says(dist: str, scope: str) -> None:
    assert scope_of("tests/test_a.py::Class::test_b[x::y]", dist) == scope
