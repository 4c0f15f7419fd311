"""How a device is doing, asked in one round trip and parsed without trust."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.adb.sections import first_line, free_storage, integer, memory, sections_of

_MIN_C, _MAX_C = -60.0, 200.0
_MAX_LISTED = 64

# `$1` is the work folder, `$2` stands before every path of the kernel's own file systems (empty
# but in tests). dumpsys is Android's; where it is missing or slow, /sys has most of it. Android's
# shell does not say why its own echo could not write; cat does.
SCRIPT: Final = r"""
d=$1; r=$2
T=; timeout 1 true 2>/dev/null && T='timeout -s KILL 3'
m=@qnn-harness:
echo "${m}boot"
cat "$r/proc/sys/kernel/random/boot_id"; getprop ro.boot.boot_id 2>/dev/null
echo "${m}booted"; getprop sys.boot_completed 2>/dev/null
echo "${m}uptime"; cat "$r/proc/uptime"
echo "${m}user"; id -u
echo "${m}memory"; head -n 5 "$r/proc/meminfo" 2>/dev/null
e=$(mkdir -p "$d" 2>&1) || echo "${m}writable
$e"
echo "${m}storage"; df -k "$d" 2>/dev/null; stat -f -c 'free %a %S' "$d" 2>/dev/null
[ -n "$e" ] || {
  echo "${m}writable"
  (umask 077; echo ok | cat >"$d/.health-$$") 2>&1 && cat "$d/.health-$$"; rm -f "$d/.health-$$"
}
echo "${m}battery"; $T dumpsys battery 2>/dev/null | head -n 40
echo "${m}supplies"
grep -aH "" "$r"/sys/class/power_supply/*/type "$r"/sys/class/power_supply/*/capacity \
  "$r"/sys/class/power_supply/*/status "$r"/sys/class/power_supply/*/temp 2>/dev/null
echo "${m}zones"
grep -aH "" "$r"/sys/class/thermal/thermal_zone*/type "$r"/sys/class/thermal/thermal_zone*/temp \
  2>/dev/null
echo "${m}clocks"
grep -aH "" "$r"/sys/devices/system/cpu/cpufreq/policy*/scaling_governor \
  "$r"/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq 2>/dev/null
echo "${m}thermal"; $T dumpsys thermalservice 2>/dev/null | grep -a 'Temperature{' | head -n 200
echo "${m}screen"; $T dumpsys power 2>/dev/null | grep -a -m 1 'mWakefulness='
echo "${m}remoteprocs"
grep -aH "" "$r"/sys/class/remoteproc/*/name "$r"/sys/class/remoteproc/*/state 2>/dev/null
echo "${m}fastrpc"
for f in "$r"/dev/fastrpc-* "$r"/dev/adsprpc-smd*; do
  [ -e "$f" ] || continue
  a=; [ -r "$f" ] && a=readable
  echo "${f##*/} $a"
done
echo "${m}end"
"""

# How busy the processors are takes two looks at the same counters.
LOAD_SCRIPT: Final = r"""
m=@qnn-harness:
echo "${m}before"; head -n 1 "$2/proc/stat"
sleep 1
echo "${m}after"; head -n 1 "$2/proc/stat"
"""


@dataclass(frozen=True)
class Vitals:
    """What a device said; None or empty where it did not say.

    `booted` is False only if an Android device says that it has not booted yet. `write_problem`
    is what it said when a file could not be written into the work folder, None if it could.
    `hottest_c` is the hottest believable sensor in degrees Celsius and `hottest` its name.
    `clock_limit_khz` is what its fastest processors may clock at now, `governor` what clocks them.
    `remoteprocs` maps names to states, `fastrpc` device nodes to whether we may open them.
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
    fastrpc: Mapping[str, bool] = field(default_factory=dict)


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
        boot_id=" ".join(sections.get("boot", []))[:200] or None,
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
        fastrpc=_nodes(sections.get("fastrpc", [])),
    )


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
    """The highest limit of the processors' clocks (kHz), and the governor there."""
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


def _nodes(lines: list[str]) -> dict[str, bool]:
    found = {}
    for line in lines[:_MAX_LISTED]:
        name, _, access = line.partition(" ")
        found[name[:60]] = access.strip() == "readable"
    return found
