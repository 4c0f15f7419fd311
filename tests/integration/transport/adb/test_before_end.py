"""A script whose deadline has passed can be looked at before it is ended, and is ended anyway."""

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import DeviceLost, DeviceTimeout
from harness.transport import shell
from harness.transport.adb_device import AdbDevice
from harness.transport.shell import LOOK_GRACE_S
from tests.integration.transport.adb.conftest import REAL_BY_DAY
from tests.integration.transport.adb.remote import SLACK_S, family, survivors, wait_ended

pytestmark = REAL_BY_DAY


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is called if the device does not tell in time what there is of the script."""
    monkeypatch.setattr(shell, "END_GRACE_S", SLACK_S)


@pytest.mark.usefixtures("patient")
def test_it_is_called_while_the_processes_are_there(any_device: AdbDevice, folder: str) -> None:
    states = []

    def look(deadline: Deadline) -> None:
        states.append((len(survivors(any_device, folder)), deadline.seconds))

    with pytest.raises(DeviceTimeout):
        any_device.shell(family(folder), timeout_s=1.5, before_end=look)
    assert states == [(4, LOOK_GRACE_S)]
    wait_ended(any_device, folder)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("error", "kind"),
    [(DeviceLost("gone", serial="x"), DeviceTimeout), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_it_may_fail_or_be_interrupted(
    any_device: AdbDevice, folder: str, error: BaseException, kind: type[BaseException]
) -> None:
    def fail(_deadline: Deadline) -> None:
        raise error

    with pytest.raises(kind):
        any_device.shell(family(folder), timeout_s=1.5, before_end=fail)
    wait_ended(any_device, folder)


def test_it_is_not_called_otherwise(any_device: AdbDevice) -> None:
    def fail(_deadline: Deadline) -> None:
        raise AssertionError

    any_device.shell("true", timeout_s=60, before_end=fail)
    any_device.shell("cat /dev/zero", timeout_s=60, max_output_bytes=10, before_end=fail)
