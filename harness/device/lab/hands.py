"""What only a person can do for a device (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.device.adb.device import UNPLUGGED
from harness.device.adb.server import STATE_ADVICE
from harness.device.lab.health import HealthFinding
from harness.device.lab.readiness import ADVICE

_ALWAYS: Final = frozenset({"developer-off", "doze"})
"""What nothing but hands ends, however well the device does meanwhile."""
_ADVICE: Final[Mapping[str, str]] = {
    **ADVICE,
    "low-battery": "charge it: another cable, port or charger",
    "booting": "hold its power button, look at its screen",
    "not-writable": "see what is wrong with its storage, or name another `workdir`",
}
_ELSE: Final = "look at it: screen, cable, power; then `qnn-harness doctor {name}`"


_SIMULATED: Final = "`qnn-harness devices heal {name}` restarts it; see `qnn-harness doctor {name}`"


@dataclass(frozen=True)
class Hands:
    """What a person must do for a device, and why; each is one line."""

    do: str
    why: str


def needs_hands(
    name: str, findings: Iterable[HealthFinding], *, simulated: bool = False
) -> Hands | None:
    """What the device with these findings needs; None: nothing.

    To be asked once the steps of recovery were taken: what they mend is not for hands. One that is
    `simulated` here has neither cable nor screen.
    """
    for finding in findings:
        if finding.state == "bad" or finding.code in _ALWAYS:
            if simulated:
                return Hands(_SIMULATED.format(name=name), finding.text)
            advice = _ADVICE.get(finding.code, _ELSE)
            if finding.code == "unreachable":
                advice = _unreachable(finding.text)
            return Hands(advice.format(name=name), finding.text)
    return None


def _unreachable(why: str) -> str:
    for state, advice in STATE_ADVICE.items():
        if f"is {state}" in why:
            return advice
    if UNPLUGGED in why:
        return "plug it in, switch it on; if it is, another cable or port"
    return "see why its adb server does not answer" if "no adb server" in why else _ELSE
