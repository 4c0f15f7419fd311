"""Identity of devices: the names they report, and an id that is stored on them.

Addresses are given to other devices, cables are moved. A device's own name (its serial number) is
compared when it is attached; its device id, a random line in the harness's folder on it, when it is
attached and by the shell that starts each probe, which costs no round trip.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import DeviceError, DeviceRefused
from harness.core.socs import PLATFORMS, Target
from harness.lab.device_config import DeviceConfig
from harness.lab.facts import DeviceFacts
from harness.transport.device import Transport

_TIMEOUT_S = 15.0
_NAME = ".device-badge"
_EXIT_ANOTHER = 96

# `ln` makes a file appear whole or not at all, and only that of one of two hosts
_SCRIPT = """
f=$1/NAME; n=$f.$$
mkdir -p "$1" 2>/dev/null && read -r i </proc/sys/kernel/random/uuid || exit 0
if [ -s "$f" ]; then echo old; else
{ echo "$i" >"$n" && { ln "$n" "$f" || cp "$n" "$f"; }; rm -f "$n"; } 2>/dev/null; echo new; fi
[ -s "$f" ] && read -r i <"$f" && echo "$i"
"""


@dataclass(frozen=True)
class DeviceId:
    """The id stored on a device; `existed` if it had been there before."""

    path: str
    text: str
    existed: bool

    def check(self) -> str:
        """Return shell code, using builtins only, that exits if the device has another id."""
        return (
            f"m=;read -r m 2>/dev/null <{shlex.quote(self.path)};"
            f'[ "$m" = {shlex.quote(self.text)} ]||{{ echo "another device answers, or somebody '
            f"removed the harness's folder: its device id is '$m', not {self.text}\" >&2;"
            f"exit {_EXIT_ANOTHER};}};"
        )


def give_device_id(way: Transport, workdir: str) -> DeviceId | None:
    """Return a device's id, created if it has none; None where nothing can be written.

    Raises DeviceError if the device does not answer.
    """
    script = f"set -- {shlex.quote(workdir)}\n{_SCRIPT.replace('NAME', _NAME)}"
    answer = way.shell(
        script, timeout_s=_TIMEOUT_S, max_output_bytes=4096, doing="read its device id"
    )
    lines = answer.stdout.decode("utf-8", "replace").split()
    if len(lines) != 2 or not re.fullmatch(r"[0-9a-f-]{8,64}", lines[1]):
        return None
    return DeviceId(f"{workdir}/{_NAME}", lines[1], existed=lines[0] == "old")


class CarriedId:
    """The id that a device of a run carried when it was last made ready."""

    def __init__(self) -> None:
        self._last: DeviceId | None = None
        self.known: set[str] = set()

    def look(self, way: Transport, workdir: str) -> DeviceId | None:
        """Return the device's id in one round trip, created if it has none.

        None where nothing can be written. Raises DeviceError if it is none of those that this
        device had before; without one it is accepted, since somebody may have emptied it.
        """
        own_id = give_device_id(way, workdir)
        if own_id is None:
            return None
        if self.known and own_id.existed and own_id.text not in self.known:
            raise DeviceError(
                f"another device answers here: its device id is {own_id.text}, not "
                + " or ".join(sorted(self.known)),
                serial=way.serial,
            )
        self._last = own_id
        self.known.add(own_id.text)
        return own_id

    def check(self) -> str:
        """Return the code that a shell runs before it starts a probe; see `DeviceId.check`."""
        return self._last.check() if self._last is not None else ""


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
                    f"another device answers here: it reports {kind} {name}, "
                    f"not {kind} {known[kind]}",
                    serial=serial,
                )
            return


def require_serial(serial: str, reported: str | None) -> None:
    """Raise DeviceError if a device on USB reports another serial number than adb."""
    if reported is None or ":" in serial or serial.startswith(("emulator-", "adb-")):
        return
    if reported != serial:
        raise DeviceError(
            f"another device answers here: it reports serial {reported}", serial=serial
        )


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
        why = f"device {config.name} is not a supported target: {facts.target_reason}"
        raise WrongTarget(f"{why} (valid: {', '.join(PLATFORMS)})", serial=serial)
    if config.target not in (None, facts.target):
        raise WrongTarget(
            f"devices.yaml has target {config.target} for {config.name}, but the device is "
            f"{facts.target} ({facts.target_reason}); leave `target` out, or check that this is "
            "the right device",
            serial=serial,
        )
    return facts.target
