"""Identity of devices: the names they report, and their boot.

Addresses are given to other devices, cables are moved. A device's own name (its serial number) is
compared when it is attached; the id of its boot by the shell that starts each probe, which costs no
round trip.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from harness.core.errors import DeviceError, DeviceRefused
from harness.core.socs import PLATFORMS, Target
from harness.lab.devices import DeviceConfig
from harness.lab.facts import DeviceFacts

_EXIT_ANOTHER: Final = 96


def boot_check(boot: str | None) -> str:
    """Return shell code that exits if a device has another boot id; none if its own is unknown."""
    if boot is None:
        return ""
    return (
        "b=$({ cat /proc/sys/kernel/random/boot_id;getprop ro.boot.boot_id; } 2>/dev/null);"
        f'[ "$(echo $b)" = {shlex.quote(boot)} ]||{{ '
        'echo "another device answers, or it has rebooted: it has another boot id" >&2;'
        f"exit {_EXIT_ANOTHER};}};"
    )


def require_same_device(serial: str, first: Sequence[str], now: Sequence[str]) -> None:
    """Raise DeviceError if a device identifies itself as another one than before.

    `first` and `now` are its own words, the most telling ones first (`DeviceFacts.identity`). What
    it said only once proves nothing: the first kind of name that both have decides.
    """
    known = {kind: name for kind, _, name in (entry.rpartition(" ") for entry in first)}
    for kind, _, name in (entry.rpartition(" ") for entry in now):
        if kind in known:
            if name != known[kind]:
                raise DeviceError(
                    f"another device answers here: it says it is {kind} {name}, "
                    f"it was {kind} {known[kind]}",
                    serial=serial,
                )
            return


def require_serial(serial: str, reported: str | None) -> None:
    """Raise DeviceError if a device on USB reports another serial number than adb."""
    if reported is None or ":" in serial or serial.startswith(("emulator-", "adb-")):
        return
    if reported != serial:
        raise DeviceError(f"another device answers here: it says it is {reported}", serial=serial)


class WrongTarget(DeviceRefused):
    """A device's target is unsupported, or differs from that in devices.yaml.

    Nobody knows which is wrong, so that it is no mistake of the user's.
    """


def require_target(config: DeviceConfig, facts: DeviceFacts, serial: str) -> Target:
    """Return the target that the device reports, or that of devices.yaml if it reports none.

    Raises WrongTarget.
    """
    if facts.target is None:
        if facts.machine is None and config.target is not None:
            return config.target
        why = f"device {config.name} is no known target: {facts.target_reason}"
        raise WrongTarget(f"{why} (known: {', '.join(PLATFORMS)})", serial=serial)
    if config.target not in (None, facts.target):
        raise WrongTarget(
            f"devices.yaml says that {config.name} is {config.target}, and the device itself that "
            f"it is {facts.target} ({facts.target_reason}); leave `target` out, the device is "
            "asked, or look whether it is another device",
            serial=serial,
        )
    return facts.target
