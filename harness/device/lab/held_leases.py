"""The leases that keep other processes off a device of the lab.

A device has two: of its address, which is all that is known before it answers, and of what it says
it is, since one device may have many addresses.
"""

from __future__ import annotations

from collections import Counter

from harness.device.lab.lease import DeviceHeld, LeaseLost, Leases
from harness.device.lab.lease_files import Held


class SharedLeases:
    """What the devices of one lab share of their leases.

    Two names of one device share its leases: one process uses it after all. `wait_s` is how long
    another process is waited for; who waited in vain once is not kept waiting again.
    """

    def __init__(self, leases: Leases, *, wait_s: float = 0.0) -> None:
        self.leases = leases
        self.wait_s = self.patience_s = wait_s
        self._holders = Counter[str]()

    def take(self, key: str, name: str, wait_s: float) -> None:
        """Takes a lease for one more holder. Raises DeviceHeld if another process has it."""
        self.leases.take(key, name, wait_s=wait_s)
        self._holders[key] += 1

    def free(self, key: str) -> None:
        """Frees a lease when its last holder lets go of it."""
        self._holders[key] -= 1
        if not self._holders[key]:
            self.leases.free(key)


class DeviceLease:
    """What this process holds of one device of its lab."""

    def __init__(self, shared: SharedLeases, name: str) -> None:
        self._shared = shared
        self._name = name
        self._keys: list[str] = []
        self._lent = ""

    def take(self, key: str) -> None:
        """Takes one lease of the device, its address first; at once if that was done before.

        Raises DeviceHeld if another process has it; who waited in vain once is not kept waiting
        again.
        """
        wait_s, self._shared.wait_s = self._shared.wait_s, 0.0
        self._take(key, wait_s)
        self._shared.wait_s = wait_s

    def take_device(self, device: str) -> bool:
        """Takes a device whose address is held by what it is, and lets go of what it was before.

        False if another process had to be waited for: what the device said is old by then. Nobody
        waits for the second lease of a device while holding the first, so that no two processes
        wait for each other. Raises DeviceHeld, and then holds nothing of the device.
        """
        address = self._keys[0]
        try:
            self._take(device, 0.0)
        except DeviceHeld:
            self.let_go()
            try:
                self.take(device)
                self._take(address, 0.0)
            except DeviceHeld:
                self.let_go()
                raise
            self._keys.reverse()
            return False
        for key in [one for one in self._keys if one not in (address, device)]:
            self._keys.remove(key)
            self._shared.free(key)
        return True

    def require(self) -> None:
        """Raises LeaseLost if another process may have got the device, and lets go of it then."""
        try:
            for key in self._keys:
                self._shared.leases.require(key)
        except LeaseLost:
            self.let_go()
            raise

    def asked_for(self) -> Held | None:
        """The person who asks for the device."""
        loans = (self._shared.leases.loan(key) for key in self._keys)
        return next(filter(None, loans), None)

    def lend(self) -> None:
        """Frees the device for the person who asks for it, and queues to have it back."""
        leases = self._shared.leases
        self._lent = next((key for key in self._keys if leases.loan(key)), self._keys[0])
        leases.lend(self._lent, self._name)
        self.let_go()

    @property
    def is_lent(self) -> bool:
        return self._shared.leases.is_lent(self._lent)

    def wait_back(self) -> None:
        """Waits for the end of a loan. Raises DeviceHeld if somebody else has it then."""
        self._shared.leases.take(self._lent, self._name, wait_s=self._shared.patience_s)

    def let_go(self) -> None:
        """Frees what is held of the device."""
        while self._keys:
            self._shared.free(self._keys.pop())

    def _take(self, key: str, wait_s: float) -> None:
        if key not in self._keys:
            self._shared.take(key, self._name, wait_s)
            self._keys.append(key)
