"""Which attempts are made at a case, and where."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.ground.errors import DeviceFull, InfraError, NotYet
from harness.run.pytest_plugin.attempts import (
    AttemptEnd,
    Attempts,
    Course,
    MovedCase,
    Twins,
)
from harness.run.workbench.placement import Placement

KINDS = {"old-a": "v68", "old-b": "v68", "new-a": "v75", "new-b": "v75"}
ALONE = Placement("old-a", "htp", "2.51.0", None)
SHARED = Placement("old-a", "htp", "2.51.0", None, among=tuple(KINDS), pool="farm")


class MockDevice:
    """What is asked of a device; `out`: it is not used, `taken`: another process has it."""

    def __init__(self, name: str, out: bool, taken: bool) -> None:
        self.name, self.is_out, self.is_taken, self.verdicts = name, out, taken, 0
        self.full = self.was_lent = False
        self.fitness: Any = self
        self.lease: Any = None

    def succeeded(self) -> None:
        self.verdicts += 1


class MockWorkbench:
    """Gives each of these devices up after a fault of the lab if it `breaks`.

    Those that are `busy` are so until somebody waits; there is no room on those that it `fills`.
    """

    def __init__(
        self, out: str = "", taken: str = "", breaks: bool = False, busy: str = "", fills: str = ""
    ) -> None:
        self.devices = {one: MockDevice(one, one in out, one in taken) for one in KINDS}
        self.lab = SimpleNamespace(device=self.devices.__getitem__)
        self.breaks, self.over = breaks, list[bool]()
        self.busy, self.fills, self.waited = busy, fills, list[list[str]]()

    @property
    def well(self) -> list[str]:
        return [one.name for one in self.devices.values() if one.verdicts]

    def problem(self, placement: Placement) -> InfraError | None:
        one = self.devices[placement.device]
        return (
            InfraError("is out")
            if one.is_out
            else DeviceFull("full", serial="")
            if one.full
            else None
        )

    def is_busy(self, placement: Placement) -> bool:
        return placement.device in self.busy

    def ready(self, placement: Placement, within: object) -> None:
        if self.is_busy(placement):
            raise NotYet(placement.device)
        if placement.device in self.fills:
            self.devices[placement.device].full = True
            raise DeviceFull("no room", serial="")

    def wait_for_any(self, placements: list[Placement]) -> None:
        self.waited.append([one.device for one in placements])
        self.busy = ""

    def recover(self, device: MockDevice, *, case_over: bool, within: object) -> None:
        self.over.append(case_over)
        device.is_out = self.breaks


def made(
    workbench: Any, ends: list[AttemptEnd], placement: Placement = SHARED, **options: Any
) -> tuple[list[str], list[bool], Attempts]:
    """Where attempts that end so are made, and whether another one was to follow each."""
    worker = options.pop("is_worker", False)
    attempts = Attempts(
        Twins(workbench, is_worker=worker), KINDS, placement, **{"retries": 1, **options}
    )
    places, further = [], []
    for end in ends:
        begun = attempts.begin()
        assert begun is not None
        places.append(begun.device)
        further.append(attempts.go_on(end, stop=False, is_last=False))
    return places, further, attempts


@pytest.mark.parametrize(
    ("workbench", "worker", "places"),
    [
        (MockWorkbench(), False, ["old-a", "new-a"]),
        # there is none left that could say otherwise
        (MockWorkbench(out="new-a new-b"), False, ["old-a"]),
        (MockWorkbench(out="new-a", taken="new-b"), False, ["old-a", "new-b"]),
        (MockWorkbench(out="old-b", taken="new-a"), False, ["old-a", "new-b"]),
        # the controller says where a worker's case goes on
        (MockWorkbench(), True, ["old-a"]),
    ],
)
def test_the_like_of_a_device_that_cannot_are_not_asked(
    workbench: MockWorkbench, worker: bool, places: list[str]
) -> None:
    ends: list[AttemptEnd] = ["cannot"] * len(places)
    found, further, _ = made(workbench, ends, retries=0, is_worker=worker)
    assert (found, further) == (places, [True] * (len(places) - 1) + [False])
    assert set(workbench.well) == set(places), "what it said is an answer"


def test_a_case_of_one_device_alone_is_asked_of_no_other() -> None:
    _, further, attempts = made(MockWorkbench(), ["cannot"], ALONE)
    assert further == [False]
    assert attempts.given_up("cannot") is None


@pytest.mark.parametrize(
    ("workbench", "of", "retries", "places"),
    [
        (MockWorkbench(), ALONE, 2, ["old-a", "old-a", "old-a"]),
        (MockWorkbench(), ALONE, 0, ["old-a"]),
        (MockWorkbench(breaks=True), ALONE, 2, ["old-a"]),
        # elsewhere, as long as there is one
        (MockWorkbench(), SHARED, 2, ["old-a", "old-b", "new-a"]),
        (MockWorkbench(breaks=True), SHARED, 9, ["old-a", "old-b", "new-a", "new-b"]),
        (MockWorkbench(out="old-a"), SHARED, 0, ["old-b"]),
        (MockWorkbench(taken="old-a old-b"), SHARED, 0, ["new-a"]),
        (MockWorkbench(taken="old-a old-b new-a new-b"), SHARED, 0, ["old-a"]),
    ],
)
def test_a_fault_of_the_lab_is_tried_again(
    workbench: MockWorkbench, of: Placement, retries: int, places: list[str]
) -> None:
    ends: list[AttemptEnd] = ["lab"] * len(places)
    found, further, attempts = made(workbench, ends, of, retries=retries)
    assert (found, further) == (places, [True] * (len(places) - 1) + [False])
    assert attempts.number == len(places)
    assert not workbench.well


@pytest.mark.parametrize(
    ("ends", "places", "further"),
    [
        (["verdict"] * 3, ["old-a"] * 3, [True, True, False]),
        # a fault of the lab is no verdict, and is tried again as ever
        (
            ["verdict", "lab", "verdict", "verdict"],
            ["old-a", "old-a", "old-b", "old-b"],
            [True] * 3,
        ),
        (["verdict", "lab", "lab"], ["old-a", "old-a", "old-b"], [True, True, False]),
    ],
)
def test_what_has_a_verdict_is_run_again_where_it_was(
    ends: list[AttemptEnd], places: list[str], further: list[bool]
) -> None:
    found, told, attempts = made(MockWorkbench(), ends, again=3, before=1)
    assert attempts.has_verdict
    assert (found, told[: len(further)]) == (places, further)
    assert attempts.number == 1 + len(ends)


def test_a_verdict_ends_it_and_so_does_the_end_of_the_run() -> None:
    workbench = MockWorkbench()
    assert made(workbench, ["verdict"])[1:2] == ([False],)
    assert workbench.well == ["old-a"]
    attempts = Attempts(Twins(workbench, is_worker=False), KINDS, ALONE, retries=0)  # type: ignore[arg-type]
    attempts.begin()
    assert not attempts.go_on("lab", stop=False, is_last=True)
    assert not attempts.go_on("lab", stop=True, is_last=False)
    assert workbench.over == [], "a device that nobody needs is not brought back"


@pytest.mark.parametrize(
    ("end", "retries", "told"),
    [
        ("lab", 2, MovedCase("old-a", 1, 2)),
        ("lab", 0, None),
        ("cannot", 0, MovedCase("old-a", 1, 1, True)),
        ("verdict", 2, None),
    ],
)
def test_what_a_worker_gives_up_goes_on_where_it_stopped(
    end: AttemptEnd, retries: int, told: MovedCase | None
) -> None:
    workbench = MockWorkbench(breaks=True)
    _, _, attempts = made(workbench, [end], retries=retries, is_worker=True)
    assert attempts.given_up(end) == told
    if told is not None:
        course = Course()
        course.goes_on(told)
        move = course.bound_to("new-b", "farm", retries)
        assert move == MovedCase("new-b", told.attempts, told.left)
        further = made(MockWorkbench(), ["lab"], retries=retries, move=move, is_worker=True)
        assert (further[0], further[2].number) == (["new-b"], 2)
        assert further[2].given_up("lab") == (
            MovedCase("new-b", 2, told.left - 1) if told.left > 1 else None
        )


def test_a_case_in_which_workers_die_is_given_to_another_as_often_as_it_may_be_tried() -> None:
    assert [Course().died(0), Course().died(3)] == [True, True]
    course = Course()
    assert [course.died(2) for _ in range(3)] == [True, True, False]


def test_only_a_case_that_any_device_may_take_is_told_which_one_it_is() -> None:
    assert Course().bound_to("old-a", "old-a", 3) is None
    assert Course().bound_to("old-a", "farm", 3) == MovedCase("old-a", 0, 4)


@pytest.mark.parametrize(
    ("workbench", "places", "waited"),
    [
        (MockWorkbench(busy="old-a"), ["old-b"], []),
        (MockWorkbench(busy="old-a old-b new-a new-b"), ["old-a"], [[*KINDS]]),
        (MockWorkbench(fills="old-a old-b"), ["new-a"], []),
        # nowhere is room: the case tells how much it takes
        (MockWorkbench(fills="old-a old-b new-a new-b"), ["old-a"], []),
        (MockWorkbench(fills="old-a old-b new-a", busy="new-b"), ["new-b"], [["new-b"]]),
    ],
)
def test_a_case_goes_to_the_first_device_that_can_take_it(
    workbench: MockWorkbench, places: list[str], waited: list[list[str]]
) -> None:
    assert made(workbench, ["verdict"])[0] == places
    assert workbench.waited == waited


def test_a_worker_gives_back_what_its_device_is_not_ready_for_and_waits_with_what_is_its_own() -> (
    None
):
    shared = Attempts(Twins(MockWorkbench(busy="old-a"), is_worker=True), KINDS, SHARED, retries=1)  # type: ignore[arg-type]
    assert shared.begin() is None
    own = Attempts(Twins(MockWorkbench(busy="old-a"), is_worker=True), KINDS, ALONE, retries=1)  # type: ignore[arg-type]
    assert own.begin() == ALONE


def test_a_timed_case_that_a_hot_device_gives_up_has_as_many_attempts_as_before() -> None:
    for end, left in (("hot", 1), ("lab", None)):
        _, further, attempts = made(MockWorkbench(), [end], retries=0, is_worker=True)
        assert further == [False]
        told = attempts.given_up(end)
        assert (told and told.left) == left
    workbench = MockWorkbench()
    asked, further, _ = made(workbench, ["hot", "verdict"], retries=0)
    assert (len(set(asked)), further) == (2, [True, False])
    assert workbench.over == [], "nothing is done to it"
    workbench = MockWorkbench(busy="old-b new-a new-b")
    asked, _, _ = made(workbench, ["hot", "verdict"], retries=0)
    assert asked[1] != "old-a", "another one is waited for"


def test_a_device_that_was_lent_is_ready_before_its_case_begins() -> None:
    did = []

    class MockBench(MockWorkbench):
        def ready(self, placement: Placement, within: object = None) -> None:
            did.append("ready" if within is None else "asked for a second")

    workbench = MockBench(out="old-a")
    workbench.devices["old-a"].lease = SimpleNamespace(wait_back=lambda: did.append("back"))
    workbench.devices["old-a"].was_lent = True
    made(workbench, ["verdict"], is_worker=True)
    assert did == ["back", "ready"], "what takes longer is no fault of the lab"


def test_that_a_device_is_full_costs_no_attempt_and_brings_nobody_back() -> None:
    workbench = MockWorkbench(fills="old-a")
    _, further, attempts = made(workbench, ["full"], retries=0, is_worker=True)
    assert further == [False]
    assert attempts.given_up("full") == MovedCase("old-a", 1, 1)
    assert workbench.over == []
