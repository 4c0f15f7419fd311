"""The leases that keep other processes off the devices of one lab.

A device has two: of its address, which is all that is known before it answers, and of what it says
it is, since one device may have many addresses.
"""

from __future__ import annotations

from harness.lab.lease import DeviceHeld, LeaseLost, Leases


class HeldLeases:
    """What this process holds, by the names that its lab gives to devices.

    Two names of one device share its leases: one process uses it after all.
    """

    def __init__(self, leases: Leases, *, wait_s: float = 0.0) -> None:
        """`wait_s` is how long another process is waited for."""
        self._leases = leases
        self._wait_s = wait_s
        self._held: dict[str, list[str]] = {}

    def take(self, name: str, key: str) -> None:
        """Takes one lease of a device, its address first; at once if that was done before.

        Raises DeviceHeld if another process has it; who waited in vain once is not kept waiting
        again.
        """
        wait_s, self._wait_s = self._wait_s, 0.0
        self._take(name, key, wait_s)
        self._wait_s = wait_s

    def take_device(self, name: str, device: str) -> bool:
        """Takes a device whose address is held by what it is, and lets go of what it was before.

        False if another process had to be waited for: what the device said is old by then. Nobody
        waits for the second lease of a device while holding the first, so that no two processes
        wait for each other. Raises DeviceHeld, and then holds nothing of the device.
        """
        address = self._held[name][0]
        try:
            self._take(name, device, 0.0)
        except DeviceHeld:
            self.let_go(name)
            try:
                self.take(name, device)
                self._take(name, address, 0.0)
            except DeviceHeld:
                self.let_go(name)
                raise
            self._held[name].reverse()
            return False
        before, self._held[name] = self._held[name], list(dict.fromkeys((address, device)))
        self._free(before)
        return True

    def require(self, name: str) -> None:
        """Raises LeaseLost if another process may have got a device, and lets go of it then."""
        try:
            for key in self._held.get(name, ()):
                self._leases.require(key)
        except LeaseLost:
            self.let_go(name)
            raise

    def let_go(self, name: str) -> None:
        """Frees what is held of a device."""
        self._free(self._held.pop(name, []))

    def _take(self, name: str, key: str, wait_s: float) -> None:
        self._leases.take(key, name, wait_s=wait_s)
        held = self._held.setdefault(name, [])
        if key not in held:
            held.append(key)

    def _free(self, keys: list[str]) -> None:
        wanted = {key for held in self._held.values() for key in held}
        for key in keys:
            if key not in wanted:
                self._leases.free(key)
