"""Attempts at a case, and their devices."""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.bench.case_placement import Placement
from harness.bench.run_preparation import Workbench
from harness.core.errors import (
    DeviceFull,
    DeviceLost,
    DeviceRefused,
    HarnessError,
    InfraError,
    NotYet,
    VersionError,
)
from harness.lab.lease import DeviceHeld, Held, Occupied
from harness.plugin.device_run import AttemptEnd, Attempts, FreeDevices, Run
from harness.plugin.options import Options

KINDS = {"old-a": "v68", "old-b": "v68", "new-a": "v75", "new-b": "v75"}
ALONE = Placement(device="old-a", backend="htp", qnn="2.51.0", compiler=None)
SHARED = Placement(
    device="old-a", backend="htp", qnn="2.51.0", compiler=None, among=tuple(KINDS), pool="farm"
)
HELD = Held(None, 0.0)


class MockDevice:
    """A device; `out`: it is not used, `is_leased`: another process has it."""

    def __init__(self, name: str, out: bool, is_leased: bool) -> None:
        self.name, self.is_offline, self.is_leased, self.verdicts = name, out, is_leased, 0
        self.full = self.is_held = False
        self.fitness: Any = self

    def succeeded(self) -> None:
        self.verdicts += 1


class MockWorkbench:
    """Gives each of these devices up after a fault of the lab if it `breaks`.

    Those that are `busy` are so until somebody waits, and those `leased` are then free; there is no
    room on those that it `fills`; those of `files` have what is needed.
    """

    def __init__(
        self,
        out: str = "",
        leased: str = "",
        breaks: bool = False,
        busy: str = "",
        fills: str = "",
        files: str = "",
    ) -> None:
        self.devices = {name: MockDevice(name, name in out, name in leased) for name in KINDS}
        self.lab = SimpleNamespace(device=self.devices.__getitem__)
        self.breaks, self.cases_over = breaks, list[bool]()
        self.busy, self.fills, self.files = busy, fills, files
        self.waited, self.unprepared, self.distrusted = 0, set[str](), list[str]()
        self.in_vain = False

    @property
    def well(self) -> list[str]:
        return [device.name for device in self.devices.values() if device.verdicts]

    @property
    def leases(self) -> list[str]:
        return [device.name for device in self.devices.values() if device.is_held]

    def problem(self, placement: Placement) -> InfraError | None:
        device = self.devices[placement.device]
        if device.is_offline:
            return InfraError("is out")
        return DeviceFull("full", serial="") if device.full else None

    def acquire(self, device: MockDevice) -> Occupied | None:
        assert not device.is_held, "each attempt has its device to itself"
        if device.is_leased or device.name in self.unprepared:
            return Occupied(device.name, device.name, HELD)
        device.is_held = True
        return None

    def give_back(self, device: MockDevice) -> None:
        device.is_held = False

    def wait_for(self, attempt: Callable[[], Sequence[Occupied]], *, wait: bool = True) -> None:
        while missed := attempt():
            if self.in_vain or not wait:
                raise DeviceHeld(f"device {missed[0].name} is held", HELD)
            self.waited += 1
            self.busy = ""
            self.unprepared.clear()
            for device in self.devices.values():
                device.is_leased = False

    def has_files(self, placement: Placement) -> bool:
        return placement.device in self.files

    def make_fit(self, placement: Placement, patience_s: None) -> None:
        assert not placement.is_shared, "who alone can run it is waited for"

    def ready(self, placement: Placement, patience_s: float) -> None:
        if placement.device in self.busy:
            self.devices[placement.device].is_held = False
            self.unprepared.add(placement.device)
            raise NotYet(placement.device)
        if placement.device in self.fills:
            self.devices[placement.device].full = True
            raise DeviceFull("no room", serial="")

    def keep_out(self, device: MockDevice, error: DeviceHeld) -> None:
        device.is_offline = True

    def distrust(self, device: MockDevice) -> None:
        self.distrusted.append(device.name)

    def recover(self, device: MockDevice, *, case_over: bool, background: bool) -> None:
        self.cases_over.append(case_over)
        device.is_offline = self.breaks


def run_attempts(
    workbench: Any, ends: list[AttemptEnd], placement: Placement = SHARED, **options: Any
) -> tuple[list[str], list[bool], Attempts]:
    """Run attempts that end so; return their devices, and whether another was to follow each."""
    attempts = Attempts(FreeDevices(workbench), KINDS, placement, **{"retries": 1, **options})
    places, further = [], []
    for end in ends:
        places.append(attempts.begin().device)
        assert workbench.leases in ([places[-1]], [])
        further.append(attempts.finish(end, stop=False, is_last=False))
        assert workbench.leases == [], "others may have it between two attempts"
    return places, further, attempts


@pytest.mark.parametrize(
    ("workbench", "of", "places"),
    [
        (MockWorkbench(), SHARED, ["old-a", "new-a"]),
        (MockWorkbench(), ALONE, ["old-a"]),
        # there is none left that could say otherwise
        (MockWorkbench(out="new-a new-b"), SHARED, ["old-a"]),
        (MockWorkbench(out="new-a", leased="new-b"), SHARED, ["old-a", "new-b"]),
        (MockWorkbench(out="old-b", leased="new-a"), SHARED, ["old-a", "new-b"]),
    ],
)
def test_the_like_of_a_device_that_cannot_are_not_asked(
    workbench: MockWorkbench, of: Placement, places: list[str]
) -> None:
    ends: list[AttemptEnd] = ["unsupported"] * len(places)
    devices, further, _ = run_attempts(workbench, ends, of, retries=0)
    assert (devices, further) == (places, [True] * (len(places) - 1) + [False])
    assert set(workbench.well) == set(places), "what it said is an answer"


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
        (MockWorkbench(leased="old-a old-b"), SHARED, 0, ["new-a"]),
        (MockWorkbench(files="new-a"), SHARED, 0, ["new-a"]),
    ],
)
def test_a_fault_of_the_lab_is_tried_again(
    workbench: MockWorkbench, of: Placement, retries: int, places: list[str]
) -> None:
    ends: list[AttemptEnd] = ["lab"] * len(places)
    devices, further, attempts = run_attempts(workbench, ends, of, retries=retries)
    assert (devices, further) == (places, [True] * (len(places) - 1) + [False])
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
    devices, follows, attempts = run_attempts(MockWorkbench(), ends, again=3, before=1)
    assert attempts.has_verdict
    assert (devices, follows[: len(further)]) == (places, further)
    assert attempts.number == 1 + len(ends)
    assert run_attempts(MockWorkbench(), ["verdict"], again=1, preferred="new-b")[0] == ["new-b"]


def test_a_verdict_ends_it_and_so_does_the_end_of_the_run() -> None:
    workbench = MockWorkbench()
    assert run_attempts(workbench, ["verdict"])[1:2] == ([False],)
    assert workbench.well == ["old-a"]
    for stop, is_last in ((False, True), (True, False)):
        attempts = Attempts(FreeDevices(workbench), KINDS, ALONE, retries=0)  # type: ignore[arg-type]
        attempts.begin()
        assert not attempts.finish("lab", stop=stop, is_last=is_last)
    assert workbench.cases_over == [], "a device that nobody needs is not brought back"
    assert workbench.distrusted == ["old-a", "old-a"], "whoever has it next looks at it"


def test_the_device_used_last_comes_first_and_then_one_that_has_the_files() -> None:
    workbench: Any = MockWorkbench(files="new-b")
    devices = FreeDevices(workbench)
    assert devices.acquire(SHARED).device == "new-b"
    workbench.give_back(workbench.devices["new-b"])
    workbench.files = ""
    assert devices.acquire(SHARED).device == "new-b"
    assert devices.acquire(SHARED.on("new-b"), tried=["new-b"]).device == "old-a"


class MockForecast:
    """A run near its end, in which each case waits for the device `new-b`."""

    def __init__(self, in_use: str) -> None:
        self.in_use = in_use.split()
        self.noted: list[tuple[str | float | None, ...]] = []

    def is_late(self, devices: int) -> bool:
        return True

    def in_order(self, case: str, places: Iterable[Placement]) -> list[Placement]:
        return sorted(places, key=lambda place: place.device != "new-b")

    def waits(self, case: str, device: str, in_use: Sequence[str], waited_s: float) -> bool:
        assert case == "a-case"
        return "new-b" in in_use

    def note(self, case: str, device: str, *taken_s: float | None) -> None:
        self.noted.append((device, *taken_s))


@pytest.mark.parametrize(
    ("is_ours", "in_use", "place", "waited"),
    [
        (True, "new-b old-b", "new-b", 1),
        (False, "new-b", "old-a", 0),
        # it is being made ready, or recovered
        (True, "old-b", "old-a", 0),
    ],
)
def test_a_case_waits_for_a_faster_device_on_which_our_own_run_has_cases(
    is_ours: bool, in_use: str, place: str, waited: int
) -> None:
    workbench: Any = MockWorkbench(leased="new-b")
    workbench.is_ours = lambda _: is_ours
    forecast: Any = MockForecast(in_use)
    attempts = Attempts(FreeDevices(workbench, forecast), KINDS, SHARED, retries=0, case="a-case")
    assert (attempts.begin().device, workbench.waited) == (place, waited)
    assert forecast.noted == [(place,)]
    attempts.finish("verdict", stop=False, is_last=False)
    assert forecast.noted[1][0] == place
    assert isinstance(forecast.noted[1][1], float)


def test_a_case_that_is_run_again_stays_on_its_device_near_the_end_of_a_run() -> None:
    forecast: Any = MockForecast("new-b")
    devices = FreeDevices(cast("Workbench", MockWorkbench()), forecast)
    options: Any = {"retries": 0, "again": 1, "case": "a-case"}
    for preferred, device in (("", "new-b"), ("old-b", "old-b")):
        attempts = Attempts(devices, KINDS, SHARED, preferred=preferred, **options)
        assert attempts.begin().device == device
        attempts.finish("verdict", stop=False, is_last=False)


def test_other_workers_are_told_of_a_device_that_has_a_fault_or_takes_long() -> None:
    workbench: Any = MockWorkbench(busy="old-a")
    forecast: Any = MockForecast("")
    forecast.in_order = lambda case, places: [*places]
    attempts = Attempts(FreeDevices(workbench, forecast), KINDS, SHARED, retries=1, case="a-case")
    attempts.begin()
    assert forecast.noted == [("old-a", None), ("old-b",)]
    assert attempts.finish("lab", stop=False, is_last=False)
    assert forecast.noted[2:] == [("old-b", None)]


@pytest.mark.parametrize(
    ("workbench", "of", "place", "waited"),
    [
        (MockWorkbench(busy="old-a"), SHARED, "old-b", 0),
        (MockWorkbench(busy="old-a old-b new-a new-b"), SHARED, "old-a", 1),
        (MockWorkbench(leased="old-a old-b new-a new-b"), SHARED, "old-a", 1),
        # what only one device can run waits until that is brought back
        (MockWorkbench(busy="old-a"), ALONE, "old-a", 0),
        (MockWorkbench(leased="old-a"), ALONE, "old-a", 1),
        (MockWorkbench(fills="old-a old-b"), SHARED, "new-a", 0),
        # nowhere is room: the case tells how much it takes
        (MockWorkbench(fills="old-a old-b new-a new-b"), SHARED, "old-a", 0),
        (MockWorkbench(fills="old-a old-b new-a", busy="new-b"), SHARED, "new-b", 1),
    ],
)
def test_a_case_goes_to_the_first_device_that_can_take_it(
    workbench: MockWorkbench, of: Placement, place: str, waited: int
) -> None:
    assert run_attempts(workbench, ["verdict"], of)[0] == [place]
    assert workbench.waited == waited


def test_a_device_that_was_waited_for_in_vain_is_told_by_the_case_and_not_held() -> None:
    workbench = MockWorkbench(leased="old-a")
    workbench.in_vain = True
    attempts = Attempts(FreeDevices(workbench), KINDS, ALONE, retries=0)  # type: ignore[arg-type]
    assert attempts.begin() == ALONE
    assert workbench.leases == []
    assert workbench.problem(ALONE) is not None


def test_a_timed_case_that_a_hot_device_gives_up_has_as_many_attempts_as_before() -> None:
    workbench = MockWorkbench()
    devices, further, _ = run_attempts(workbench, ["hot", "verdict"], retries=0)
    assert (len(set(devices)), further) == (2, [True, False])
    assert workbench.cases_over == [], "nothing is done to it"
    workbench = MockWorkbench(busy="old-b new-a new-b")
    devices, _, _ = run_attempts(workbench, ["hot", "verdict"], retries=0)
    assert devices[1] != "old-a", "another one is waited for"


def test_that_a_device_is_full_costs_no_attempt_and_brings_nobody_back() -> None:
    workbench = MockWorkbench()
    attempts = Attempts(FreeDevices(workbench), KINDS, SHARED, retries=0)  # type: ignore[arg-type]
    workbench.devices[attempts.begin().device].full = True
    assert attempts.finish("full", stop=False, is_last=False)
    assert attempts.begin().device == "old-b"
    assert workbench.cases_over == []


PLACEMENT = Placement(device="phone", backend="htp", qnn="2.51.0", compiler="2.51.0")
INDEX = InfraError("the package index does not answer")
LOST = DeviceLost("the connection ended early", serial="R5CX1234")
FULL = DeviceRefused("No space left on device", serial="R5CX1234")
VERSION = VersionError("there is no such version")


@pytest.mark.parametrize(
    ("errors", "is_offline", "raised"),
    [
        ([VERSION, VERSION], False, VERSION),
        ([INDEX], False, INDEX),
        ([VERSION, INDEX], False, INDEX),
        ([FULL], False, FULL),
        ([LOST], False, None),
        ([FULL, LOST], False, None),
        ([VERSION, LOST], False, None),
        ([LOST], True, None),
        ([InfraError("device phone is in quarantine")], True, None),
    ],
)
def test_only_where_a_device_is_to_blame_cases_are_tried(
    errors: list[HarnessError], is_offline: bool, raised: HarnessError | None
) -> None:
    run = Run(cast(Options, None))
    lab = SimpleNamespace(device=lambda name: SimpleNamespace(is_offline=is_offline))
    run._workbench = cast(Workbench, SimpleNamespace(lab=lab))
    if raised is None:
        run._nothing_ready([PLACEMENT], errors)
        return
    with pytest.raises(HarnessError) as caught:
        run._nothing_ready([PLACEMENT], errors)
    assert caught.value is raised
