"""What is done to devices beside the cases, so that no case waits for a device."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from typing import Final, Literal

from harness.device.lab.attach import LabDevice
from harness.ground.errors import HarnessError, NotYet
from harness.ground.host.deadline import Deadline

Stands = Literal["away", "out", "back"]
"""What a device is to who gives it cases: it is seen to, it was given up, or it takes cases."""

_ENDS_S: Final = 2.0
_LEAST_PAUSE_S: Final = 0.1


class _Task:
    """Something that is done to a device; `left`: nobody waits for it any more.

    When it `is_over`, the device was given up, and is only looked at.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.left = self.is_over = False
        self.error: BaseException | None = None


class Beside:
    """Does one thing at a time to each device, in a thread of its own.

    A device that was given up is looked at until it is well again or the run is over.
    """

    def __init__(
        self, look: Callable[[LabDevice], None], tell: Callable[[LabDevice, Stands], None]
    ) -> None:
        """`look` looks at a device that was given up, which takes it back or raises InfraError.

        `tell` is told how a device stands that its case has not waited for, or that was given up.
        """
        self._look = look
        self._tell = tell
        self._tasks: dict[LabDevice, _Task] = {}
        self._changed = threading.Condition()
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def has(self, device: LabDevice) -> bool:
        """Whether anything is done to a device, be it that it is looked at."""
        return device in self._tasks

    def is_busy(self, device: LabDevice) -> bool:
        """Whether something is done to a device that is not known to take no cases."""
        task = self._tasks.get(device)
        return task is not None and not (task.is_over and device.is_out)

    def do(self, device: LabDevice, act: Callable[[], object], within: Deadline | None) -> None:
        """Does `act` once all before it is done; with no deadline, here and now.

        Raises what it raises; NotYet if it is not over in time, though it goes on; and why a device
        is out that was given up.
        """
        with self._changed:
            self._wait(device, within)
            if within is None:
                task = None
            else:
                task = self._tasks[device] = _Task(act)
        if task is None:
            act()
            return
        threading.Thread(target=self._run, args=(device, task), daemon=True).start()
        with self._changed:
            self._wait(device, within, task)
        if task.error is not None:
            raise task.error

    def wait_for_any(self, devices: Collection[LabDevice]) -> None:
        """Waits until nothing is done to one of these devices, or it was given up."""
        with self._changed:
            self._changed.wait_for(lambda: not all(map(self.is_busy, devices)))

    def close(self) -> None:
        """Ends what can be ended: what waits for a device that does not come is left."""
        self._over.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._tasks, _ENDS_S)

    def _wait(self, device: LabDevice, within: Deadline | None, own: _Task | None = None) -> None:
        left_s = None if within is None else within.remaining()
        if not self._changed.wait_for(lambda: not self.is_busy(device), left_s):
            task = self._tasks[device]
            if not task.left:
                task.left = True
                self._tell(device, "away")
            raise NotYet(f"device {device.name} is still being made ready")
        out = device.fitness.out
        if device in self._tasks and out is not None and (own is None or own.error is None):
            raise out.error

    def _run(self, device: LabDevice, task: _Task) -> None:
        try:
            task.act()
        except BaseException as error:  # it is raised where somebody waits for it
            task.error = error
        with self._changed:
            task.is_over = True
            if device.is_out and not self.is_over:
                self._tell(device, "out")
                task.left = True
            self._changed.notify_all()
        while (out := device.fitness.out) is not None:
            if self._over.wait(max(_LEAST_PAUSE_S, out.look_at - time.monotonic())):
                break
            with contextlib.suppress(HarnessError):
                self._look(device)
        with self._changed:
            del self._tasks[device]
            if task.left and not self.is_over:
                self._tell(device, "back")
            self._changed.notify_all()
