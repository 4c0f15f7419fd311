"""Removes what deployments left on a device: all of it, or what nobody uses."""

from __future__ import annotations

from dataclasses import dataclass

from harness.device.store.claims import is_dead
from harness.device.store.client import StoreClient
from harness.device.store.eviction import Inventory, plan_eviction
from harness.device.transport.device import Transport
from harness.ground.host.deadline import Deadline

_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Cleaned:
    """What was removed from a device's store, and what stays; sizes in bytes.

    `holders` are the claims of those who use what stays. `freed_bytes` counts contents once,
    however many sets shared them.
    """

    freed_bytes: int
    kept_bytes: int
    sets_removed: tuple[str, ...]
    sets_kept: tuple[str, ...]
    holders: tuple[str, ...]


def clean(device: Transport, workdir: str, *, everything: bool = False) -> Cleaned:
    """Removes what no live process uses; with `everything`, also what is in use.

    With `everything`, who uses the device meanwhile loses its files; `holders` are then those who
    did. Marks of processes of this host that are gone do not count. Raises DeviceError.
    """
    deadline = Deadline(_TIMEOUT_S)
    store = StoreClient(device, workdir.rstrip("/"))
    before = store.inventory(deadline)
    holders = tuple(sorted(claim for claim in before.claims if not is_dead(claim)))
    if everything:
        store.remove_all(deadline)
        return _compared(before, Inventory(), holders)
    dead = [claim for claim in before.claims if is_dead(claim)]
    if dead:
        # their claims go first, so that what only they name counts as unused
        store.evict(plan_eviction(before, 0), dead, deadline)
    plan = plan_eviction(store.inventory(deadline) if dead else before, None)
    if plan.sets or plan.entries or plan.drop:
        store.evict(plan, (), deadline)
    return _compared(before, store.inventory(deadline), holders)


def _compared(before: Inventory, after: Inventory, holders: tuple[str, ...]) -> Cleaned:
    kept = set(after.sets)
    return Cleaned(
        freed_bytes=max(0, before.total_bytes - after.total_bytes),
        kept_bytes=after.total_bytes,
        sets_removed=tuple(sorted(set(before.sets) - kept)),
        sets_kept=tuple(sorted(kept)),
        holders=holders,
    )
