"""Whether it is the same device that answers: by what it says it is, and by an id left on it.

Addresses are given to other devices, cables are moved. What a device says (its serial number) is
compared when it is attached; its device id, a random line in the harness's folder on it, when it is
attached and by the shell that starts each probe, which costs no round trip.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from harness.core.errors import DeviceError, DeviceRefused
from harness.core.socs import PLATFORMS, Target
from harness.lab.facts import DeviceFacts
from harness.lab.inventory import DeviceConfig
from harness.transport.device import Transport

_TIMEOUT_S = 15.0
_NAME = ".device-badge"
_EXIT_ANOTHER = 96

# `ln` is what makes a file appear whole or not at all, and only one of two hosts'
_SCRIPT = """
f=$1/NAME; n=$f.$$
mkdir -p "$1" 2>/dev/null && read -r i </proc/sys/kernel/random/uuid || exit 0
if [ -s "$f" ]; then echo old; else
{ echo "$i" >"$n" && { ln "$n" "$f" || cp "$n" "$f"; }; rm -f "$n"; } 2>/dev/null; echo new; fi
[ -s "$f" ] && read -r i <"$f" && echo "$i"
"""


@dataclass(frozen=True)
class DeviceId:
    """What is written on a device; `found` if it had been there before."""

    path: str
    text: str
    found: bool

    def check(self) -> str:
        """Shell text, without any program, that exits where the device id is not the right one."""
        return (
            f"m=;read -r m 2>/dev/null <{shlex.quote(self.path)};"
            f'[ "$m" = {shlex.quote(self.text)} ]||{{ echo "another device answers, or somebody '
            f"removed the harness's folder: its device id is '$m', not {self.text}\" >&2;"
            f"exit {_EXIT_ANOTHER};}};"
        )


def give_device_id(way: Transport, workdir: str) -> DeviceId | None:
    """A device's id, made if it has none; None where nothing can be written.

    Raises DeviceError if the device does not answer.
    """
    script = f"set -- {shlex.quote(workdir)}\n{_SCRIPT.replace('NAME', _NAME)}"
    answer = way.shell(
        script, timeout_s=_TIMEOUT_S, max_output_bytes=4096, doing="ask for its device id"
    )
    lines = answer.stdout.decode("utf-8", "replace").split()
    if len(lines) != 2 or not re.fullmatch(r"[0-9a-f-]{8,64}", lines[1]):
        return None
    return DeviceId(f"{workdir}/{_NAME}", lines[1], found=lines[0] == "old")


def require_same_id(serial: str, known: Collection[str], now: DeviceId | None) -> None:
    """Raises DeviceError if a device shows an id that is none of those `known` for it.

    One that has none is believed: somebody may have emptied it.
    """
    if known and now is not None and now.found and now.text not in known:
        raise DeviceError(
            f"another device answers here: it carries the device id {now.text}, not "
            + " or ".join(sorted(known)),
            serial=serial,
        )


class CarriedId:
    """The id that a device of a run carried when it was last made ready."""

    def __init__(self) -> None:
        self._last: DeviceId | None = None
        self.known: set[str] = set()

    def look(self, way: Transport, workdir: str) -> DeviceId | None:
        """Looks at the device's id in one round trip, and gives it one if it has none.

        None where nothing can be written.

        Raises DeviceError if it is none of those that this device had before.
        """
        own_id = give_device_id(way, workdir)
        require_same_id(way.serial, self.known, own_id)
        if own_id is not None:
            self._last = own_id
            self.known.add(own_id.text)
        return own_id

    def check(self) -> str:
        """What the shell runs that starts a probe there; see `DeviceId.check`."""
        return self._last.check() if self._last is not None else ""


def require_same_device(serial: str, first: Sequence[str], now: Sequence[str]) -> None:
    """Raises DeviceError if a device says that it is another one than before.

    `first` and `now` are its own words, the most telling ones first (`DeviceFacts.identity`). What
    it said only once proves nothing: the first kind of name that both have decides.
    """
    was = {kind: name for kind, _, name in (one.rpartition(" ") for one in first)}
    for kind, _, name in (one.rpartition(" ") for one in now):
        if kind in was:
            if name != was[kind]:
                raise DeviceError(
                    f"another device answers here: it says it is {kind} {name}, "
                    f"it was {kind} {was[kind]}",
                    serial=serial,
                )
            return


def require_serial(serial: str, said: str | None) -> None:
    """Raises DeviceError if a device on USB calls itself by another serial number than adb does."""
    if said is None or ":" in serial or serial.startswith(("emulator-", "adb-")):
        return
    if said != serial:
        raise DeviceError(f"another device answers here: it says it is {said}", serial=serial)


class WrongTarget(DeviceRefused):
    """A device says that it is something that nothing here is built for, or not what its lab says.

    Who is wrong nobody knows: its words are no mistake of the user's.
    """


def require_target(config: DeviceConfig, facts: DeviceFacts, serial: str) -> Target:
    """What the device says; devices.yaml may say the same, or what a device cannot tell.

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
