"""On how many devices of which kind something is seen: the one way in which that is said (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

_KINDS: Final = 4


def spread(seen: Iterable[tuple[str, str, bool]], named: Callable[[str], str] = str) -> str:
    """As in `6 of 6 SM8750, on no SM8550 or SM8650`, of a kind, a device and whether it is there.

    `named` writes the name of a kind. Of very many kinds only the sum is told.
    """
    kinds: dict[str, dict[str, bool]] = {}
    for kind, device, is_there in seen:
        devices = kinds.setdefault(kind, {})
        devices[device] = is_there or devices.get(device, False)
    on = {kind: sum(kinds[kind].values()) for kind in sorted(kinds)}
    told = [
        f"{count} of {len(kinds[kind])} {named(kind) if kind else 'devices'}"
        for kind, count in on.items()
        if count
    ]
    none = [named(kind) if kind else "other" for kind, count in on.items() if not count]
    if len(told) > _KINDS:
        told, none = [f"{sum(on.values())} of {sum(map(len, kinds.values()))} devices"], []
    if len(none) > _KINDS:
        none = [*none[:_KINDS], f"{len(none) - _KINDS} more"]
    nowhere = [f"no {' or '.join(none)}"] if none else []
    return ", on ".join([", ".join(told), *nowhere] if told else nowhere)
