"""Which steps may bring a device back, and in what order (pure)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

Rung = Literal["reconnect", "end-leftovers", "restart-server", "reboot"]

# Nothing but time, or a person, helps against these.
_BEYOND_OUR_POWER: Final = frozenset({"hot", "low-battery"})
_NEED_A_CONNECTION: Final[frozenset[Rung]] = frozenset({"end-leftovers", "reboot"})


def rungs(
    codes: Collection[str], strikes: int, *, own_server: bool, may_reboot: bool
) -> tuple[Rung, ...]:
    """The steps to try one after the other until the device is well; none: only quarantine helps.

    `codes` are what is wrong with it (none: it looks well), `strikes` counts the failures of the
    lab on it since a case last went well, this one included: a step that a device looked well
    after, and then failed again, is not taken twice.
    """
    if codes and _BEYOND_OUR_POWER.issuperset(codes):
        return ()
    ladder: list[Rung] = ["reconnect", "end-leftovers"]
    if own_server:
        ladder.append("restart-server")
    if may_reboot:
        ladder.append("reboot")
    return tuple(ladder[max(0, strikes - 1) :])


def is_worth_trying(rung: Rung, codes: Collection[str]) -> bool:
    """Whether a step may help a device of which `codes` are wrong by now."""
    if codes and _BEYOND_OUR_POWER.issuperset(codes):
        return False
    return not ("unreachable" in codes and rung in _NEED_A_CONNECTION)
