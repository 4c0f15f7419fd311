"""What only a person can do for a device (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from harness.device.adb.device import UNPLUGGED
from harness.device.adb.server import STATE_ADVICE, state_advice
from harness.device.adb.wireless import has_address
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
_NOT_THERE: Final = (
    "switch it on, and its adb over the network; if it is, correct its address in devices.yaml"
)
_REFUSED: Final = ("cannot be connected", "did not become ready", "failed to connect")
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
                advice = unreachable_advice(finding.text) or _ELSE
            return Hands(advice.replace("{name}", name), finding.text)
    return None


def unreachable_advice(why: str) -> str | None:
    """What to do about a device that was not reached, by what was said of it; None: nobody knows.

    It is the same whoever tells it. What has an address hangs on no cable of ours.
    """
    serial = next((one for word in why.split() if has_address(one := word.strip(":;,."))), "")
    for state in STATE_ADVICE:
        if f"is {state}" in why:
            return state_advice(state, serial, _ELSE)
    if UNPLUGGED in why:
        return "plug it in, switch it on; if it is, another cable or port"
    if "no adb server" in why:
        return "see why its adb server does not answer"
    return _NOT_THERE if serial and any(one in why for one in _REFUSED) else None
