"""Work on devices while cases go on elsewhere."""

import threading
from typing import Any

import pytest

from harness.bench.run_preparation import BackgroundTasks
from harness.core.errors import InfraError, NotYet


class MockDevice:
    """Has a name."""

    name = "phone"


DEVICE: Any = MockDevice()


def test_what_takes_longer_goes_on_and_gives_the_device_back() -> None:
    back, end, finished = list[Any](), threading.Event(), threading.Event()

    def give_back(device: object) -> None:
        back.append(device)
        finished.set()

    tasks = BackgroundTasks(give_back)
    with pytest.raises(NotYet):
        tasks.run(DEVICE, end.wait, 0.01)
    assert tasks.is_busy(DEVICE)
    assert back == []
    end.set()
    assert finished.wait(60)
    assert back == [DEVICE]
    tasks.close()
    assert not tasks.is_busy(DEVICE)


@pytest.mark.parametrize("patience_s", [None, 60.0])
def test_what_is_waited_for_keeps_the_device_and_raises_its_error(patience_s: float | None) -> None:
    back = list[Any]()
    tasks = BackgroundTasks(back.append)
    tasks.run(DEVICE, lambda: None, patience_s)

    def fail() -> None:
        raise InfraError("it is away")

    with pytest.raises(InfraError, match="it is away"):
        tasks.run(DEVICE, fail, patience_s)
    assert not tasks.is_busy(DEVICE)
    assert back == []


def test_after_the_end_nothing_is_given_back() -> None:
    back, end = list[Any](), threading.Event()
    tasks = BackgroundTasks(back.append)
    with pytest.raises(NotYet):
        tasks.run(DEVICE, end.wait, 0.0)
    threading.Timer(0.2, end.set).start()
    tasks.close()
    assert tasks.is_over
    assert back == []
