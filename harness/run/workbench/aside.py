"""What is done to devices while cases go on elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from harness.device.lab.attach import LabDevice
from harness.ground.errors import NotYet

_ENDS_S: Final = 2.0


class Aside:
    """Sees to devices in threads, each of which keeps the lease of its device until it is done."""

    def __init__(self, give_back: Callable[[LabDevice], None]) -> None:
        """`give_back` lets others have a device that nobody waits for any more."""
        self._give_back = give_back
        self._left: dict[LabDevice, bool] = {}
        self._changed = threading.Condition()
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def has(self, device: LabDevice) -> bool:
        """Whether a device is seen to, and nobody waits for it."""
        return self._left.get(device, False)

    def do(self, device: LabDevice, act: Callable[[], object], patience_s: float | None) -> None:
        """Does `act` to a device that is held; here and now with no patience given.

        Raises what it raises, and NotYet if it takes longer: then it goes on, and the device is
        given back at its end.
        """
        if patience_s is None:
            act()
            return
        errors: list[BaseException] = []

        def run() -> None:
            try:
                act()
            except BaseException as error:  # it is raised where somebody waits for it
                errors.append(error)
            with self._changed:
                if self._left.pop(device) and not self.is_over:
                    self._give_back(device)
                self._changed.notify_all()

        with self._changed:
            self._left[device] = False
            threading.Thread(target=run, daemon=True).start()
            if not self._changed.wait_for(lambda: device not in self._left, patience_s):
                self._left[device] = True
                raise NotYet(f"device {device.name} is still being made ready")
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Ends what can be ended: what waits for a device that does not come is left."""
        self._over.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._left, _ENDS_S)
