"""What an Android phone says of how ready it is to be used for months: its settings, read (pure).

Words and numbers are those of AOSP's sources for Android 13 to 16 (frameworks/base:
BatteryService, DeviceIdleController, ThermalManagerService, Settings.Global, Owners of the device
policy), and of two makers' settings. No phone has confirmed them yet; what an Android does not say
is not known, never a fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.device.transport.questions import integer

THERMAL: Final = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
"""What `Thermal Status` counts (PowerManager.THERMAL_STATUS_*), also each sensor's mStatus."""
SEVERE: Final = 3
DOZING: Final = frozenset({"IDLE", "IDLE_MAINTENANCE"})
"""The states of `dumpsys deviceidle get deep` in which nothing may run but now and then."""
KEY_DAYS: Final = 7.0
"""After how long without adb Android 11 and later forget a computer's key, where nothing is set."""
ADVICE: Final[Mapping[str, str]] = {
    "hot": "let it cool down: air, out of its case",
    "throttled": "let it cool down: air, out of its case",
    "doze": "unlock it, or plug it in: a phone that charges does not doze",
    "overridden": "do what stands there",
    "update-pending": "install it when nothing runs; then Automatic system updates off",
    "developer-off": "switch its developer options and USB debugging on",
    "other-user": "switch to its owner; end the others: their apps run beside the cases",
}
"""What to do about a finding, by its code."""

_DAY_MS: Final = 86_400_000
_MAX_LINES: Final = 100
# Settings of makers: Google's, of Android 15 on, and Samsung's of One UI
_LIMITS: Final = {
    "charge_optimization_mode": ("1",),
    "protect_battery": ("1", "2", "3", "4"),
}
_STATUS: Final = re.compile(r"\bmStatus=(\d{1,2})\b", re.ASCII)
_NAME: Final = re.compile(r"\bmName=([\w. -]{1,60})", re.ASCII)


@dataclass(frozen=True)
class Readiness:
    """What a phone said; None where it did not.

    `is_plugged`: something powers it. `charge_limit` is the setting that keeps it from being
    charged fully. `battery_held`: its battery's figures are those of somebody's `dumpsys battery
    set`. `doze` is the state of deep doze. `thermal_status` is an index of THERMAL, `throttled` the
    sensor that is worst, `thermal_held`: somebody's override. `user` is in front, `users` run.
    `update` is the system update that waits. `developer`: developer options are on;
    `key_days` is after how many days without adb a computer's key is forgotten, 0: never.
    """

    is_plugged: bool | None = None
    charge_limit: str | None = None
    battery_held: bool = False
    doze: str | None = None
    thermal_status: int | None = None
    throttled: str | None = None
    thermal_held: bool = False
    user: int | None = None
    users: tuple[int, ...] = ()
    update: str | None = None
    developer: bool | None = None
    key_days: float | None = None


def parse_readiness(sections: Mapping[str, list[str]]) -> Readiness:
    """Reads the parts `battery`, `thermal` and `ready` of an answer."""
    battery, thermal = sections.get("battery", []), sections.get("thermal", [])
    said: dict[str, str] = {}
    users = []
    for line in sections.get("ready", [])[:_MAX_LINES]:
        key, _, value = line.partition("=")
        if key == "users" and (number := integer(value)) is not None:
            users.append(number)
        said.setdefault(key, value.strip()[:200])
    powered = [line.endswith("true") for line in battery if " powered: " in line]
    limits = [f"{key}={said[key]}" for key, on in _LIMITS.items() if said.get(key) in on]
    status, hottest = _thermal(thermal)
    answers = bool(said)
    key_ms = integer(said.get("adb_allowed_connection_time"))
    return Readiness(
        is_plugged=any(powered) if powered else None,
        charge_limit=limits[0] if limits else None,
        battery_held=any("UPDATES STOPPED" in line for line in battery),
        doze=_word(said.get("doze")),
        thermal_status=status,
        throttled=hottest,
        thermal_held="IsStatusOverride: true" in thermal,
        user=integer(said.get("user")),
        users=tuple(users),
        update=said.get("update") or None,
        developer={"1": True, "0": False}.get(said.get("development_settings_enabled", "")),
        key_days=key_ms / _DAY_MS if key_ms is not None else KEY_DAYS if answers else None,
    )


def _thermal(lines: list[str]) -> tuple[int | None, str | None]:
    """The status of all, and the sensor that has the worst of its own."""
    of_all, worst, name = None, 0, None
    for line in lines[: 4 * _MAX_LINES]:
        if line.startswith("Thermal Status:"):
            of_all = integer(line.partition(":")[2].strip())
        elif (found := _STATUS.search(line)) and int(found[1]) > worst:
            sensor = _NAME.search(line)
            worst, name = int(found[1]), sensor[1].strip() if sensor else None
    return None if of_all is None or of_all >= len(THERMAL) else of_all, name


def _word(text: str | None) -> str | None:
    return text if text and re.fullmatch(r"[A-Z_]{1,40}", text) else None
