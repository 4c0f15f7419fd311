"""What is done to devices while cases go on elsewhere."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from harness.bench.workbench import Aside
from harness.core.errors import InfraError, NotYet


class MockDevice:
    """Has a name."""

    name = "phone"


DEVICE: Any = MockDevice()


def test_what_takes_longer_goes_on_and_gives_the_device_back() -> None:
    back, end, done = list[Any](), threading.Event(), threading.Event()

    def give_back(device: object) -> None:
        back.append(device)
        done.set()

    aside = Aside(give_back)
    with pytest.raises(NotYet, match="phone is still being made ready"):
        aside.do(DEVICE, end.wait, 0.01)
    assert aside.has(DEVICE)
    assert back == []
    end.set()
    assert done.wait(60)
    assert back == [DEVICE]
    aside.close()
    assert not aside.has(DEVICE)


@pytest.mark.parametrize("patience_s", [None, 60.0])
def test_what_is_waited_for_keeps_the_device_and_raises_its_error(patience_s: float | None) -> None:
    back = list[Any]()
    aside = Aside(back.append)
    aside.do(DEVICE, lambda: None, patience_s)

    def fail() -> None:
        raise InfraError("it is away")

    with pytest.raises(InfraError, match="it is away"):
        aside.do(DEVICE, fail, patience_s)
    assert not aside.has(DEVICE)
    assert back == []


def test_after_the_end_nothing_is_given_back() -> None:
    back, end = list[Any](), threading.Event()
    aside = Aside(back.append)
    with pytest.raises(NotYet):
        aside.do(DEVICE, end.wait, 0.0)
    threading.Timer(0.2, end.set).start()
    aside.close()
    assert aside.is_over
    assert back == []
