"""How a device is doing, asked in one round trip and parsed without trust."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.device.lab.readiness import Readiness, parse_readiness
from harness.device.transport.questions import (
    access_of,
    boot_of,
    first_line,
    free_storage,
    integer,
    memory,
    script_of,
    sections_of,
)

_MIN_C, _MAX_C = -60.0, 200.0
_MAX_LISTED = 64

QUESTIONS: Final = (
    "boot booted uptime user memory writable storage battery supplies zones clocks thermal screen "
    "remoteprocs nodes ready clock"
)
SCRIPT: Final = script_of(QUESTIONS)
LOAD_SCRIPT: Final = script_of("before after")
"""How busy the processors are takes two looks at the same counters."""


@dataclass(frozen=True)
class Vitals:
    """What a device said; None or empty where it did not say.

    `booted` is False only if an Android device says that it has not booted yet. `write_problem`
    is what it said when a file could not be written into the work folder, None if it could.
    `hottest_c` is the hottest believable sensor in degrees Celsius and `hottest` its name.
    `clock_limit_khz` is what its fastest processors may clock at now, `governor` what clocks them.
    `remoteprocs` maps names to states, `fastrpc` device nodes to whether we may
    read (r) and write (w) them. `clock_s` is its time in seconds since 1970, `skew_s` how far that
    is ahead of this computer's, at least. `ready` is what an Android says of its settings.
    """

    boot_id: str | None = None
    booted: bool | None = None
    uptime_s: float | None = None
    is_root: bool | None = None
    free_ram_bytes: int | None = None
    free_storage_bytes: int | None = None
    write_problem: str | None = None
    battery_percent: int | None = None
    battery_charging: bool | None = None
    hottest_c: float | None = None
    hottest: str | None = None
    clock_limit_khz: int | None = None
    governor: str | None = None
    screen_on: bool | None = None
    remoteprocs: Mapping[str, str] = field(default_factory=dict)
    fastrpc: Mapping[str, str] = field(default_factory=dict)
    clock_s: int | None = None
    skew_s: float | None = None
    ready: Readiness = field(default_factory=Readiness)


def parse_vitals(text: str) -> Vitals | None:
    """Reads the answer to SCRIPT, None if it is not whole; what is malformed becomes None."""
    sections = sections_of(text)
    if "end" not in sections:
        return None
    percent, charging, battery_c = _battery(sections)
    heats = _zones(sections.get("zones", [])) | _thermal_service(sections.get("thermal", []))
    if battery_c is not None:
        heats["battery"] = battery_c
    heats = {name: heat for name, heat in heats.items() if _MIN_C < heat < _MAX_C}
    hottest = max(heats, key=lambda name: heats[name], default=None)
    clock, governor = _clocks(sections.get("clocks", []))
    booted = first_line(sections, "booted")
    user = integer(first_line(sections, "user"))
    written = sections.get("writable", [])
    return Vitals(
        boot_id=boot_of(sections),
        booted=None if booted is None else booted == "1",
        uptime_s=_decimal((first_line(sections, "uptime") or "").partition(" ")[0]),
        is_root=None if user is None else user == 0,
        free_ram_bytes=memory(sections, "MemAvailable"),
        free_storage_bytes=free_storage(sections.get("storage", [])),
        write_problem=None if "ok" in written else " ".join(written)[:300] or "no answer",
        battery_percent=percent,
        battery_charging=charging,
        hottest_c=None if hottest is None else heats[hottest],
        hottest=hottest,
        clock_limit_khz=clock,
        governor=governor,
        screen_on=_screen(first_line(sections, "screen")),
        remoteprocs=_remoteprocs(sections.get("remoteprocs", [])),
        fastrpc={
            path.rsplit("/", 1)[-1]: how for path, how in access_of(sections, "nodes").items()
        },
        clock_s=integer(first_line(sections, "clock")),
        ready=parse_readiness(sections),
    )


def clock_skew(clock_s: int | None, before: float, after: float) -> float | None:
    """How far a clock that showed so many whole seconds is ahead, at least.

    It was read between the two moments; 0 where it can have been right.
    """
    if clock_s is None:
        return None
    least, most = clock_s - after, clock_s + 1 - before
    return max(least, 0.0) if least > 0 else min(most, 0.0)


def parse_load(text: str) -> float | None:
    """How busy all processors were, 0 to 1, from the answer to LOAD_SCRIPT."""
    sections = sections_of(text)
    before = _counters(first_line(sections, "before"))
    after = _counters(first_line(sections, "after"))
    if before is None or after is None:
        return None
    passed = [new - old for old, new in zip(before, after, strict=True)]
    total = sum(passed)
    # the fourth is idle, the fifth waits for storage
    return None if total <= 0 or min(passed) < 0 else 1 - (passed[3] + passed[4]) / total


def _counters(line: str | None) -> list[int] | None:
    found = re.fullmatch(r"cpu\s+((?:\d{1,18}\s*){5,12})", line or "")
    return [int(number) for number in found[1].split()[:8]] if found else None


def _decimal(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?\d{1,12}(?:\.\d{1,6})?", text) else None


def _named(lines: list[str]) -> dict[str, dict[str, str]]:
    """`.../NAME/FIELD:value` lines as {NAME: {FIELD: value}}."""
    found: dict[str, dict[str, str]] = {}
    for line in lines[: 8 * _MAX_LISTED]:
        path, _, value = line.partition(":")
        *_, name, key = ("", "", *path.split("/"))
        if name and key and len(found) < 4 * _MAX_LISTED:
            found.setdefault(name, {})[key] = value.strip()[:100]
    return found


def _battery(
    sections: Mapping[str, list[str]],
) -> tuple[int | None, bool | None, float | None]:
    """(percent, charging, degrees) as dumpsys says, else as /sys says."""
    said: dict[str, str] = {}
    for line in sections.get("battery", []):
        key, _, value = line.partition(":")
        said.setdefault(key.strip(), value.strip())
    if said.get("present") == "false":
        return None, None, None
    percent = integer(said.get("level"))
    if percent is not None:
        # 2 is charging, 5 full: BatteryManager.BATTERY_STATUS_*
        charging = {"2": True, "5": True, "3": False, "4": False}.get(said.get("status", ""))
        tenths = _decimal(said.get("temperature", ""))
        return percent, charging, None if tenths is None else tenths / 10
    for supply in _named(sections.get("supplies", [])).values():
        percent = integer(supply.get("capacity"))
        if supply.get("type") == "Battery" and percent is not None:
            status = supply.get("status", "")
            tenths = _decimal(supply.get("temp", ""))
            charging = status in ("Charging", "Full") if status else None
            return percent, charging, None if tenths is None else tenths / 10
    return None, None, None


def _zones(lines: list[str]) -> dict[str, float]:
    """Kernels give thousandths of a degree; some vendors' zones tenths or whole degrees."""
    found = {}
    for name, zone in _named(lines).items():
        number = _decimal(zone.get("temp", ""))
        if number is None or number <= 0:
            continue  # a sensor that is switched off says 0 or something impossible
        degrees = number / 1000 if number >= 1000 else number / 10 if number > 200 else number
        found[zone.get("type") or name] = degrees
    return found


def _clocks(lines: list[str]) -> tuple[int | None, str | None]:
    policies = _named(lines).values()
    fastest = max(policies, key=lambda one: integer(one.get("scaling_max_freq")) or 0, default={})
    return integer(fastest.get("scaling_max_freq")), fastest.get("scaling_governor") or None


def _thermal_service(lines: list[str]) -> dict[str, float]:
    found = {}
    for line in lines[: 4 * _MAX_LISTED]:
        value = re.search(r"mValue=(-?\d{1,6}(?:\.\d{1,8})?)", line)
        name = re.search(r"mName=([\w. -]{1,60})", line)
        if value and name:
            found[name[1].strip()] = float(value[1])
    return found


def _screen(line: str | None) -> bool | None:
    found = re.search(r"mWakefulness=(\w+)", line or "")
    return None if found is None else found[1] not in ("Asleep", "Dozing")


def _remoteprocs(lines: list[str]) -> dict[str, str]:
    named = _named(lines)
    return {
        part.get("name") or name: part["state"] for name, part in named.items() if "state" in part
    }
