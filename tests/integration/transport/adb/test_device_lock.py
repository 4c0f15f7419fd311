"""A lock on a device, for those who share it: one holder, a line, and a certain end."""

import time

import pytest

from harness.core.errors import DeviceError
from harness.transport.adb_device import AdbDevice
from harness.transport.device_lock import DeviceLock


def until_acquired(lock: DeviceLock, line: bytes) -> float:
    """Stand in line until it is acquired; return the seconds that took."""
    start = time.monotonic()
    while not lock.try_acquire(line, wait=True):
        assert time.monotonic() < start + 60
    return time.monotonic() - start


def test_one_holder_at_a_time(any_device: AdbDevice, folder: str) -> None:
    first, second = (DeviceLock(any_device, folder) for _ in range(2))
    assert first.try_acquire(b'{"user": "it\'s $(me)"}', wait=False)
    assert first.is_held()
    first.beat()
    assert not second.try_acquire(b"second", wait=False)
    assert (second.last_holder, second.is_held()) == (b'{"user": "it\'s $(me)"}', False)
    first.release()
    assert not first.is_held()
    assert second.try_acquire(b"second", wait=False)
    second.release()
    assert first.try_acquire(b"first again", wait=False)
    assert first.last_holder == b"second"
    first.release()


def test_who_stands_in_line_is_not_overtaken(any_device: AdbDevice, folder: str) -> None:
    holder, waiting, late = (DeviceLock(any_device, folder) for _ in range(3))
    assert holder.try_acquire(b"holder", wait=False)
    assert not waiting.try_acquire(b"waiting", wait=True)
    while late.try_acquire(b"late", wait=False) or late.last_holder != b"holder":
        late.release()
    holder.release()
    assert not holder.try_acquire(b"holder", wait=False)
    until_acquired(waiting, b"waiting")
    assert not late.try_acquire(b"late", wait=True)
    late.release()  # leaves the line
    waiting.release()
    until_acquired(holder, b"holder")  # a shell that left the line may still be ending
    holder.release()


def test_it_ends_with_the_connection(any_device: AdbDevice, folder: str) -> None:
    holder, other = (DeviceLock(any_device, folder) for _ in range(2))
    assert holder.try_acquire(b"holder", wait=False)
    holder._channel.close()
    until_acquired(other, b"other")
    other.release()


def test_a_folder_that_cannot_be_written(any_device: AdbDevice) -> None:
    lock = DeviceLock(any_device, "/proc/none")
    with pytest.raises(DeviceError, match="cannot lock a file in /proc/none"):
        lock.try_acquire(b"x", wait=False)
    assert not lock.is_held()
