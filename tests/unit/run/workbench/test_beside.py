"""What is done to devices beside the cases: who waits for it, and who is told."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device.lab.health import Out
from harness.ground.errors import InfraError, NotYet
from harness.ground.host.deadline import Deadline
from harness.run.workbench.beside import Beside

SOON = 10.0


class MockDevice:
    """A device that is given up by `fail`."""

    name = "phone"

    def __init__(self) -> None:
        self.fitness = SimpleNamespace(out=None)

    @property
    def is_out(self) -> bool:
        return self.fitness.out is not None

    def fail(self) -> None:
        self.fitness.out = Out(InfraError("it does not answer"), look_at=0.0)
        raise self.fitness.out.error


class Watched:
    """What `Beside` was told to do, and what it told; `looks` says how often a look is in vain."""

    def __init__(self, looks: int = 0) -> None:
        self.told: list[str] = []
        self.back = threading.Event()
        self.looks = looks
        self.made = Beside(self.look, self.tell)

    def look(self, device: Any) -> None:
        self.looks -= 1
        if self.looks >= 0:
            raise InfraError("not yet")
        device.fitness.out = None

    def tell(self, device: Any, how: str) -> None:
        self.told.append(f"{how} {device.name}")
        if how == "back":
            self.back.set()


def test_what_is_over_in_time_is_told_to_nobody_and_raises_what_it_raises() -> None:
    watched, device = Watched(), MockDevice()
    done: list[str] = []
    watched.made.do(device, lambda: done.append("beside"), Deadline(SOON))  # type: ignore[arg-type]
    watched.made.do(device, lambda: done.append("here"), None)  # type: ignore[arg-type]
    assert done == ["beside", "here"]

    def wrong() -> None:
        raise InfraError("broken")

    for within in (Deadline(SOON), None):
        with pytest.raises(InfraError, match="broken"):
            watched.made.do(device, wrong, within)  # type: ignore[arg-type]
    assert watched.told == []


def test_a_case_leaves_a_device_that_takes_long_and_it_says_when_it_is_back() -> None:
    watched, device, go = Watched(), MockDevice(), threading.Event()
    slow, quick = lambda: bool(go.wait(SOON)), lambda: None
    for _ in range(2):
        with pytest.raises(NotYet, match="phone is still being made ready"):
            watched.made.do(device, slow, Deadline(0.05))  # type: ignore[arg-type]
    assert watched.made.is_busy(device)  # type: ignore[arg-type]
    assert watched.told == ["away phone"]
    go.set()
    watched.made.wait_for_any([device])  # type: ignore[list-item]
    assert watched.back.wait(SOON)
    watched.made.do(device, quick, Deadline(SOON))  # type: ignore[arg-type]
    assert watched.told == ["away phone", "back phone"]


def test_a_device_that_was_given_up_is_looked_at_until_it_is_well() -> None:
    watched, device = Watched(looks=2), MockDevice()
    with pytest.raises(InfraError, match="does not answer"):
        watched.made.do(device, device.fail, Deadline(SOON))  # type: ignore[arg-type]
    with pytest.raises(InfraError, match="does not answer"):
        watched.made.do(device, device.fail, None)  # type: ignore[arg-type]
    assert not watched.made.is_busy(device)  # type: ignore[arg-type]
    assert watched.back.wait(SOON)
    assert watched.told == ["out phone", "back phone"]
    assert watched.looks == -1


def test_at_the_end_nobody_waits_for_a_device_that_does_not_come() -> None:
    watched, device = Watched(looks=10**6), MockDevice()
    with pytest.raises(InfraError):
        watched.made.do(device, device.fail, Deadline(SOON))  # type: ignore[arg-type]
    watched.made.close()
    assert watched.told == ["out phone"]
