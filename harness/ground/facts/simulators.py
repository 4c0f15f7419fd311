"""What a result of a simulated device cannot tell of a real one, as a sentence (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from harness.ground.facts.codes import same_code
from harness.ground.facts.versions import QnnVersion

LIMITED_SINCE: Final = "2.49.40"
"""The first QNN whose HTP simulator enforces the budget of a protection domain; seen by trial."""
_MEMORY: Final = 1002

Claim = Literal["capacity", "version", "speed"]
"""How much fits; which version changed something; how long something takes."""


def claim_of(code: int | None) -> Claim:
    """The claim that a change between versions is, by the code of its failure."""
    return "capacity" if code is not None and same_code(code, _MEMORY) else "version"


def limits_of_simulation(
    claim: Claim, target: str | None, versions: Iterable[str | None], *, simulated: bool = True
) -> str | None:
    """What a claim leaves open that rests on simulated devices alone; None if it does not.

    `target` is what their libraries are built for, `versions` are those of QNN that ran.
    """
    if not simulated:
        return None
    if claim == "speed":
        return "these times are of a simulator: they say nothing about a phone"
    if target != "linux-x64":
        return (
            "its DSP is simulated: the libraries are those for devices, but a phone shares its "
            "DSP's memory with other programs, and its driver may answer otherwise"
        )
    if claim == "version":
        return (
            "it ran on Qualcomm's simulator of these versions: their libraries for devices may do "
            "otherwise"
        )
    parsed = sorted(filter(None, map(QnnVersion.found_in, dict.fromkeys(versions))))
    since = QnnVersion.parse(LIMITED_SINCE)
    free = [str(version) for version in parsed if version < since]
    if free and len(free) == len(parsed):
        return (
            f"the simulator of QNN {', '.join(free)} enforces no limit of memory (only those from "
            f"{LIMITED_SINCE} on do): it does not tell what fits on a device"
        )
    if free:
        return (
            f"only simulators from {LIMITED_SINCE} on enforce a limit of memory, those of "
            f"{', '.join(free)} do not: a failure of memory that begins there is the simulator's, "
            "and tells no change of the libraries for devices"
        )
    return "this limit of memory is the simulator's, one protection domain; a device has its own"
