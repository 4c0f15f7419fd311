"""Who runs what under pytest-xdist, with workers that are played here."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Collection
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, strategies as st
from packaging.requirements import Requirement
from xdist.scheduler.protocol import Scheduling

from harness.run.pytest_plugin.scheduler import ByDevice, scope_of
from tests.logged import Logged


class Worker:
    """What xdist's WorkerController is to a scheduler; it runs a test when it knows the next.

    `is_pause` is told as `Messages.is_pause` tells it.
    """

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.queue: list[int] = []
        self.shutting_down = False
        self.lost = False
        self.begun: int | None = None

    def send_runtest_some(self, numbers: list[int]) -> None:
        if self.lost:
            raise OSError("cannot send (already closed?)")
        self.queue += numbers

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def can_run(self) -> bool:
        return len(self.queue) > (0 if self.shutting_down else 1)

    def take(self) -> tuple[int, bool]:
        """The test that is run now, and whether it is none, but a pause."""
        number = self.queue.pop(0)
        if self.begun == number:
            self.begun = None
            return number, True
        self.begun = number if self.queue[:1] == [number] else None
        return number, False


class Played(NamedTuple):
    """A scheduler, its workers, and where cases were sent."""

    made: ByDevice
    nodes: list[Worker]
    bound: dict[str, str]

    def begun(self, node: Worker) -> int | None:
        """The case that a worker begins now: pauses are over as soon as they can be."""
        while node.can_run:
            number, pause = node.take()
            if not pause:
                return number
            self.made.mark_test_complete(node, number)
        return None


def played(
    names: list[str],
    cases: dict[str, str],
    workers: int,
    dist: str = "load",
    kinds: dict[str, str] | None = None,
    needs: dict[str, tuple[str, ...]] | None = None,
    earlier: dict[str, float] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
    taken: Collection[str] = (),
) -> Played:
    told: list[Any] = []
    config = SimpleNamespace(
        option=SimpleNamespace(dist=dist),
        getoption=lambda name, default: default,
        hook=SimpleNamespace(pytest_collectreport=lambda report: told.append(report)),
        told=told,
    )
    bound: dict[str, str] = {}
    made = ByDevice(
        cast(pytest.Config, config),
        workers,
        {name: (where, "", (needs or {}).get(name, (where,))) for name, where in cases.items()},
        kinds=lambda: kinds or {},
        earlier=lambda: earlier or {},
        bind=bound.__setitem__,
        is_taken=lambda device: device in taken,
        clock=clock,
    )
    nodes = [Worker(f"gw{number}") for number in range(workers)]
    for node in nodes:
        made.add_node(node)
        made.add_node_collection(node, names)
    made.schedule()
    return Played(made, nodes, bound)


def scheduler(
    names: list[str], devices: dict[str, str], workers: int, dist: str = "load"
) -> tuple[ByDevice, list[Worker]]:
    return played(names, devices, workers, dist)[:2]


def test_it_is_what_the_pinned_pytest_xdist_asks_of_a_scheduler() -> None:
    for name, asked in vars(Scheduling).items():
        if name.startswith("_"):
            continue
        ours = getattr(ByDevice, name)
        assert isinstance(ours, property) == isinstance(asked, property), name
        if not isinstance(asked, property):
            found, wanted = (inspect.signature(one).parameters for one in (ours, asked))
            assert [*found] == [*wanted], name
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    needs = [Requirement(text) for text in project["project"]["dependencies"]]
    (pin,) = (need.specifier for need in needs if need.name == "pytest-xdist")
    assert pin.contains(version("pytest-xdist"))
    assert not pin.contains("4.0"), "the protocol may be another one"


CASES = {f"t.py::test_c[{device}-{number}]": device for device in "ab" for number in range(3)}
PLAIN = [f"t.py::test_p[{number}]" for number in range(4)]


def test_a_device_has_one_worker_which_begins_each_case_at_once() -> None:
    run = played([*CASES, *PLAIN], CASES, 2)
    first, second = run.nodes
    assert (first.queue, second.queue) == ([0, 0], [3, 3])
    ran: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(3):
        for which, node in enumerate(run.nodes):
            number = run.begun(node)
            assert number is not None
            ran[which].append(number)
            run.made.mark_test_complete(node, number)
    assert ran == {0: [0, 1, 2], 1: [3, 4, 5]}
    assert not first.shutting_down
    while (node := next((one for one in run.nodes if one.can_run), None)) is not None:
        number = run.begun(node)
        if number is not None:
            run.made.mark_test_complete(node, number)
    assert run.made.tests_finished
    assert run.made.has_pending, "the last plain tests are begun when they are known to be the last"


def test_with_fewer_workers_than_devices_one_takes_the_next_device() -> None:
    run = played([*CASES], CASES, 1)
    (node,) = run.nodes
    ran = []
    while (number := run.begun(node)) is not None:
        ran.append(number)
        run.made.mark_test_complete(node, number)
    assert ran == [0, 1, 2, 3, 4, 5]
    assert run.made.tests_finished
    assert [run.bound[name] for name in CASES] == [*"aaabbb"]


IN_POOL = {"x": "pool", "y": "pool"}
POOL = {f"t.py::test_c[pool-{number}]": "pool" for number in range(5)}


def test_devices_of_a_pool_take_the_longest_that_waits_when_they_are_free() -> None:
    names = [*POOL]
    seconds = dict(zip(names, (1.0, 5.0, 2.0, 3.0, 4.0), strict=True))
    run = played(names, POOL, 2, kinds=IN_POOL, earlier=seconds)
    first, second = run.nodes
    assert (run.begun(first), run.begun(second)) == (1, 4)
    run.made.mark_test_complete(second, 4)
    assert run.begun(second) == 3
    run.made.mark_test_complete(second, 3)
    assert run.begun(second) == 2, "no case waits behind one that is being run"
    run.made.mark_test_complete(first, 1)
    assert run.begun(first) == 0
    assert run.bound == {names[1]: "x", names[4]: "y", names[3]: "y", names[2]: "y", names[0]: "x"}
    assert not run.made.tests_finished
    for node, number in ((first, 0), (second, 2)):
        run.made.mark_test_complete(node, number)
    assert run.made.tests_finished
    assert not run.made.has_pending


def test_no_worker_waits_for_what_another_session_has_while_others_can_run_the_case() -> None:
    names, now, taken = [*POOL], [0.0], {"x"}
    run = played(names, POOL, 2, kinds=IN_POOL, clock=lambda: now[0], taken=taken)
    first, second = run.nodes
    assert (run.begun(first), run.begun(second)) == (0, None)
    run.made.mark_test_complete(first, 0)
    assert (run.begun(first), run.begun(second)) == (1, None)
    taken.clear()
    run.made.mark_test_complete(first, 1)
    assert (run.begun(first), run.begun(second)) == (2, 3)
    assert [run.bound[name] for name in names[:4]] == [*"yyyx"]


def test_what_only_a_device_of_another_session_can_run_waits_for_it() -> None:
    run = played([*CASES], CASES, 2, taken={"a"})
    first, second = run.nodes
    assert (run.begun(first), run.begun(second)) == (3, 0)
    run = played([*POOL], POOL, 2, kinds=IN_POOL, taken={"x", "y"})
    assert [run.begun(node) for node in run.nodes] == [0, None]


def test_a_bad_device_gives_back_its_last_case_too() -> None:
    names = [*POOL][:2]
    now = [0.0]
    run = played(names, dict.fromkeys(names, "pool"), 2, kinds=IN_POOL, clock=lambda: now[0])
    first, second = run.nodes
    assert (run.begun(first), run.begun(second)) == (0, 1)
    run.made.mark_test_complete(first, 0)
    assert run.begun(first) is None
    run.made.mark_test_complete(second, "out y")
    assert run.made.gave_up(names[1], "y")
    assert not run.made.tests_finished
    run.made.give_back(names[1])
    run.made.mark_test_complete(second, 1)
    assert run.begun(second) is None
    assert run.begun(first) == 1
    assert run.bound[names[1]] == "x"
    run.made.mark_test_complete(first, "out x")
    assert not run.made.gave_up(names[1], "x"), "it failed on all that there are"
    run.made.mark_test_complete(first, 1)
    assert run.made.tests_finished


def test_a_device_that_was_given_up_is_tried_later_and_when_no_other_can() -> None:
    names, now = [*POOL], [0.0]
    run = played(names, POOL, 2, kinds=IN_POOL, clock=lambda: now[0])
    first, second = run.nodes
    assert (run.begun(first), run.begun(second)) == (0, 1)
    run.made.mark_test_complete(second, "full y")
    assert run.made.gave_up(names[1], "y")
    run.made.give_back(names[1])
    run.made.mark_test_complete(second, 1)
    assert run.begun(second) is None
    now[0] = 100.0
    run.made.mark_test_complete(first, 0)
    assert run.begun(first) == 1, "first of all what failed elsewhere"
    assert run.begun(second) == 2, "as it may be well again"
    run.made.mark_test_complete(second, "out y")
    assert run.made.gave_up(names[2], "y")
    run.made.give_back(names[2])
    run.made.mark_test_complete(second, 2)
    run.made.mark_test_complete(first, "out x")
    assert not run.made.gave_up(names[1], "x")
    run.made.mark_test_complete(first, 1)
    ran = []
    while at := next(((n, c) for n in run.nodes if (c := run.begun(n)) is not None), None):
        node, number = at
        run.made.mark_test_complete(node, f"out {run.bound[names[number]]}")
        if not run.made.gave_up(names[number], run.bound[names[number]]):
            ran.append(number)
        run.made.give_back(names[number])
        run.made.mark_test_complete(node, number)
    assert sorted(ran) == [2, 3, 4], "each has a record, if only of what is wrong with devices"
    assert run.made.tests_finished


def test_plain_tests_need_not_wait_for_another_worker() -> None:
    made, nodes = scheduler(PLAIN[:3], {}, 2)
    assert sorted(nodes[0].queue + nodes[1].queue) == [0, 1, 2]
    assert not made.tests_finished
    assert nodes[1].can_run
    made.mark_test_complete(nodes[0], nodes[0].queue.pop(0))
    assert nodes[0].can_run


def test_what_a_dead_worker_had_goes_on_with_who_takes_its_device() -> None:
    run = played([*CASES], CASES, 2)
    first, second = run.nodes
    assert (run.begun(first), run.begun(second)) == (0, 3)
    first.lost = True
    assert run.made.remove_node(first) == next(iter(CASES))
    for _ in range(2):
        run.made.mark_test_pending(next(iter(CASES)))
    ran, number = [], 3
    while number is not None:
        ran.append(number)
        run.made.mark_test_complete(second, number)
        number = run.begun(second)
    assert sorted(ran) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(KeyError):
        run.made.remove_node(first)


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


def test_a_case_with_a_device_in_its_name_goes_nowhere_else() -> None:
    run = played([*CASES], CASES, 2, kinds={"a": "a", "b": "b"})
    first, second = run.nodes
    case = next(iter(CASES))
    assert (run.begun(first), run.begun(second)) == (0, 3)
    run.made.mark_test_complete(first, "out a")
    assert not run.made.gave_up(case, "a")
    run.made.mark_test_complete(first, 0)
    assert run.begun(first) == 1, "who else could run it?"
    assert run.bound[[*CASES][1]] == "a"


def test_a_case_that_any_device_may_run_waits_for_none_and_goes_on_with_another_kind() -> None:
    names = [f"t.py::test_c[any-{number}]" for number in range(4)]
    needs = dict.fromkeys(names[:3], ("old", "new")) | {names[3]: ("new",)}
    kinds = {"x": "old", "y": "new"}
    run = played(names, dict.fromkeys(names, "any"), 2, kinds=kinds, needs=needs)
    begun = {node: number for node in run.nodes if (number := run.begun(node)) is not None}
    unable, number = next((n, one) for n, one in begun.items() if run.bound[names[one]] == "x")
    assert run.bound[names[3]] == "y", "what only one kind can run is not kept waiting by others"
    assert run.made.cannot(names[number], "x")
    run.made.give_back(names[number])
    ran = []
    while begun:
        node, one = begun.popitem()
        ran.append((run.bound[names[one]], one))
        if one == 3 or (one == number and node is not unable):
            assert not run.made.cannot(names[one], "y"), "no other kind is left"
        run.made.mark_test_complete(node, one)
        begun |= {n: one for n in run.nodes if n not in begun and (one := run.begun(n)) is not None}
    assert ("y", number) in ran
    assert ("y", 3) in ran
    assert sorted(one for _, one in ran) == sorted([0, 1, 2, 3, number])
    assert run.made.tests_finished


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


def test_cases_begin_with_the_first_worker_and_each_worker_has_a_device() -> None:
    config: Any = played(PLAIN, {}, 1).made.config
    cases = {name: (where, "", (where,)) for name, where in CASES.items()}
    made = ByDevice(config, 3, cases, kinds=dict)
    nodes = [Worker(f"gw{number}") for number in range(3)]
    for node in nodes:
        made.add_node(node)
    first, second, third = nodes
    names = list(CASES)
    for number in range(3):
        if not number:
            made.add_node_collection(first, names)
            assert made.collection_is_completed, "nobody waits for workers that collect still"
            made.schedule()
        assert first.queue == [number, number]
        made.mark_test_complete(first, first.take()[0])
        assert made.has_pending
        made.mark_test_complete(first, first.take()[0])
    assert first.queue == [], "the other device is for a worker that is to come"
    assert not made.tests_finished
    made.add_node_collection(second, names)
    made.schedule()
    assert second.queue == [3, 3]
    assert config.told == []
    made.add_node_collection(third, names[1:])
    assert third.shutting_down
    assert [report.outcome for report in config.told] == ["failed"]
    assert first.queue == [], "a device has one worker"


@given(
    cases=st.lists(st.sampled_from(["a", "b", "c", "pool", "any", ""]), max_size=12),
    workers=st.integers(1, 4),
    events=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=30),
)
def test_whoever_dies_no_device_is_shared_and_each_case_is_run_once(
    cases: list[str], workers: int, events: list[tuple[int, int]]
) -> None:
    names = [f"t.py::test_{number}" for number in range(len(cases))]
    places = {name: device for name, device in zip(names, cases, strict=True) if device}
    needs = {name: ("a", "pool", "b") for name, where in places.items() if where == "any"}
    now = [0.0]
    run = played(names, places, workers, kinds=IN_POOL, needs=needs, clock=lambda: now[0])
    made, alive, running = run.made, run.nodes, dict[Any, int]()
    ended: list[int] = []
    crashed: set[int] = set()
    script = iter(events)
    for step in range(300):
        now[0] += 10.0
        if made.tests_finished:
            for node in alive:
                node.shutdown()
        for node in alive:
            if node not in running and (number := run.begun(node)) is not None:
                running[node] = number
        held = [run.bound[names[number]] for number in running.values() if cases[number]]
        assert len(held) == len(set(held)), "two workers, one device"
        for name, device in run.bound.items():
            fits = needs.get(name, (places[name],))
            assert IN_POOL.get(device, device) in fits, "another device's verdict"
        if not running:
            if made.tests_finished and not any(node.can_run for node in alive):
                break
            continue
        which, event = next(script, (0, 0))
        node, number = list(running.items())[which % len(running)]
        del running[node]
        name, device = names[number], run.bound.get(names[number], "")
        if event == 1:  # it dies
            node.lost = True
            alive.remove(node)
            assert made.remove_node(node) == name
            if device:
                made.mark_test_pending(name)
            else:
                crashed.add(number)
            clone = Worker(f"gw{len(alive) + step}")
            alive.append(clone)
            made.add_node(clone)
            made.add_node_collection(clone, names)
            made.schedule()
            continue
        moves = False
        if device and event == 2:
            moves = made.gave_up(name, device)
        elif device and event == 3:
            moves = made.cannot(name, device)
        if moves:
            made.give_back(name)
        else:
            ended.append(number)
        made.mark_test_complete(node, number)
    assert not made.has_pending
    assert sorted([*ended, *crashed]) == list(range(len(cases)))


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
