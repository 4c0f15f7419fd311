"""A phone's settings as Android 13 to 16 report them, by their sources, and the verdict.

No phone has confirmed these rows: each names the source that it was written from.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from harness.lab.facts import (
    VITALS_SCRIPT,
    Readiness,
    Vitals,
    parse_readiness,
    parse_vitals,
)
from harness.lab.health import HealthRules, TimedGate, gate_problem, judge_health
from harness.transport.questions import parse_sections
from tests.properties import damaged, reached, reaches
from tests.unit.deploy.store_device import SHELLS, needing_shell, with_all_programs

BASE = "services/core/java/com/android/server"
# ArrowOS-T/android_frameworks_base@e26dec95, BASE/BatteryService.java, dumpInternal
BATTERY_13 = """Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Max charging current: 500000
  Charge counter: 3100000
  status: 4
  health: 2
  present: true
  level: 80
  scale: 100
  temperature: 254
"""
HELD_13 = BATTERY_13.replace(
    "state:\n", "state:\n  (UPDATES STOPPED -- use 'reset' to restart)\n"
).replace("USB powered: true", "USB powered: false")
# CredenceID/C2_a14_frameworks_base@5b6d2cee, the same
BATTERY_14 = BATTERY_13.replace("USB powered: true", "USB powered: false").replace(
    "  Max", "  Dock powered: true\n  Max"
)
# bluestacks/frameworks-base-a16@70f41069, the same; 15 has the same rate limits (of
# muhomorr/platform_frameworks_base-15@072ff768 all but the dump was read)
BATTERY_16 = """Current Battery Service state:
  AC powered: true
  USB powered: false
  Wireless powered: false
  Dock powered: false
  Max charging current: 3000000
 Time when the latest updated value of the Max charging current was sent via battery changed
  status: 5
  present: true
  level: 100
  Charging state: 1
  Charging policy: 1
  Capacity level: -1
"""
# aosp-mirror/platform_frameworks_base, BASE/power/ThermalManagerService.java, dumpInternal
THERMAL = """IsStatusOverride: false
Thermal Status: 3
Temperature{mValue=44.5, mType=3, mName=SKIN, mStatus=0}
Temperature{mValue=71.0, mType=0, mName=VIRTUAL-SKIN-CHARGE, mStatus=2}
Temperature{mValue=90.0, mType=0, mName=soc_therm, mStatus=3}
Temperature{mValue=NaN, mType=0, mName=odd, mStatus=0}
"""
# settings of AOSP: core/java/android/provider/Settings.java; of Google's and Samsung's phones:
# what several public programs read and write there
SETTINGS = "development_settings_enabled=1\n"
# bluestacks/frameworks-base-a16@eaabbfd1, apex/jobscheduler DeviceIdleController, `get deep`;
# users: UserInfo.toString by `pm list users`; update: OwnersData.dump of the device policy
READY = f"{SETTINGS}doze=ACTIVE\nuser=0\nusers=0\nusers=10\n"


def answered(*, battery: str = "", thermal: str = "", ready: str = "") -> Readiness:
    text = (
        f"@qnn-harness:battery\n{battery}@qnn-harness:thermal\n{thermal}"
        f"@qnn-harness:ready\n{ready}@qnn-harness:end\n"
    )
    return parse_readiness(parse_sections(text))


@pytest.mark.parametrize(
    ("reported", "known"),
    [
        ({"battery": BATTERY_13}, {"is_plugged": True}),
        ({"battery": HELD_13}, {"is_plugged": False, "battery_held": True}),
        ({"battery": BATTERY_14}, {"is_plugged": True, "battery_held": False}),
        ({"battery": BATTERY_16}, {"is_plugged": True}),
        ({"thermal": THERMAL}, {"thermal_status": 3, "throttled": "soc_therm"}),
        ({"thermal": "Thermal Status: 0\n"}, {"thermal_status": 0}),
        ({"thermal": "IsStatusOverride: true\nThermal Status: 2\n"}, {"thermal_held": True}),
        ({"thermal": "Thermal Status: 7\nThermal Status: x\n"}, {"thermal_status": None}),
        (
            {"ready": READY},
            {"developer": True, "doze": "ACTIVE", "user": 0, "users": (0, 10)},
        ),
        ({"ready": "development_settings_enabled=0\n"}, {"developer": False, "key_days": 7.0}),
        ({"ready": "development_settings_enabled=null\n"}, {"developer": None}),
        ({"ready": "adb_allowed_connection_time=0\n"}, {"key_days": 0.0}),
        ({"ready": "adb_allowed_connection_time=86400000\n"}, {"key_days": 1.0}),
        ({"ready": "protect_battery=1\n"}, {"charge_limit": "protect_battery=1"}),
        ({"ready": "protect_battery=0\ncharge_optimization_mode=0\n"}, {"charge_limit": None}),
        (
            {"ready": "charge_optimization_mode=1\n"},
            {"charge_limit": "charge_optimization_mode=1"},
        ),
        # an Android without it, or a shell that may not ask
        ({"ready": "doze=Can't find service: deviceidle\nuser=\n"}, {"doze": None, "user": None}),
        (
            {"ready": "update=SystemUpdateInfo (receivedTime = 1, buildFingerprint = a)\n"},
            {"update": "SystemUpdateInfo (receivedTime = 1, buildFingerprint = a)"},
        ),
    ],
)
def test_what_android_says(reported: dict[str, str], known: dict[str, Any]) -> None:
    readiness = answered(**reported)
    assert {name: getattr(readiness, name) for name in known} == known


def test_what_is_not_said_is_not_known_and_no_fault() -> None:
    assert answered() == Readiness()
    assert judge_health(Vitals(ready=answered()), HealthRules(), has_dsp=False).findings == ()
    assert (
        judge_health(Vitals(ready=answered(ready=READY)), HealthRules(), has_dsp=False).findings
        == ()
    )


@pytest.mark.parametrize(
    ("ready", "state", "code", "text"),
    [
        ({"thermal_status": 2}, "good", None, "good"),
        ({"thermal_status": 3}, "suspect", "throttled", "throttles it: severe"),
        ({"thermal_status": 4, "throttled": "SKIN"}, "suspect", "throttled", "critical by SKIN"),
        ({"thermal_status": 5}, "bad", "throttled", "emergency"),
        ({"doze": "IDLE"}, "suspect", "doze", "does not wake"),
        ({"doze": "IDLE_MAINTENANCE"}, "suspect", "doze", "IDLE_MAINTENANCE"),
        ({"doze": "INACTIVE"}, "good", None, "good"),
        ({"battery_held": True}, "suspect", "overridden", "cmd battery reset"),
        ({"thermal_held": True}, "suspect", "overridden", "cmd thermalservice reset"),
        ({"update": "16.1"}, "suspect", "update-pending", "which may reboot it: 16.1"),
        ({"developer": False}, "suspect", "developer-off", "adb may be gone"),
        ({"user": 10}, "suspect", "other-user", "user 10 is in front"),
        ({"user": 0, "users": (0, 10)}, "good", None, "good"),
    ],
)
def test_how_it_is_judged(ready: dict[str, Any], state: str, code: str | None, text: str) -> None:
    health = judge_health(Vitals(ready=Readiness(**ready)), HealthRules(), has_dsp=False)
    assert health.state == state
    assert [finding.code for finding in health.findings] == ([code] if code else [])
    assert text in str(health)


@pytest.mark.parametrize(
    ("skew_s", "problem"),
    [
        (60.0, None),
        (-60.0, None),
        (60.1, "60 s ahead of"),
        (-3600.0, "3600 s behind"),
        (None, None),
    ],
)
def test_a_clock_that_is_wrong(skew_s: float | None, problem: str | None) -> None:
    health = judge_health(Vitals(skew_s=skew_s), HealthRules(), has_dsp=False)
    assert health.state == ("good" if problem is None else "suspect")
    assert problem is None or problem in str(health)


@pytest.mark.parametrize(("status", "waits"), [(None, False), (0, False), (1, True), (3, True)])
def test_a_timed_case_waits_while_android_throttles(status: int | None, waits: bool) -> None:
    vitals = Vitals(ready=Readiness(thermal_status=status))
    assert (gate_problem(vitals, None, TimedGate()) is not None) == waits


@reaches(0.5)
@given(
    damaged(
        f"@qnn-harness:battery\n{HELD_13}@qnn-harness:thermal\n{THERMAL}@qnn-harness:ready\n{READY}"
    )
)
def test_any_text_is_survived(text: str) -> None:
    parsed = parse_readiness(parse_sections(text))
    if parsed.thermal_status is not None:
        reached()
        assert 0 <= parsed.thermal_status <= 6
    assert len(parsed.update or "") <= 200
    assert len(parsed.users) <= 100


PROGRAMS_OF_A_MOCK = {
    "settings": 'case $2 in global) printf "adb_enabled=1\\nauto_time=1\\n'
    'development_settings_enabled=0\\nprotect_battery=1\\nbluetooth_name=Ann\\n" ;; esac',
    "am": "echo 10",
    "pm": 'printf "Users:\\n\\tUserInfo{0:Ann:4c13} running\\n\\tUserInfo{10:Work:1030} running\\n'
    '\\tUserInfo{11:Guest:1}\\n"',
    "dumpsys": 'case "$*" in "deviceidle get deep") echo IDLE ;; '
    'device_policy) printf "Current Device Policy Manager state:\\n'
    '  Pending System Update: SystemUpdateInfo (receivedTime = 5)\\n" ;; '
    'thermalservice) printf "IsStatusOverride: false\\n\\nThermal Status: 1\\n" ;; '
    'battery) printf "  AC powered: true\\n  level: 80\\n" ;; esac',
}


def mock_programs(folder: Path, changes: dict[str, str] | None = None) -> dict[str, str]:
    """An environment in which these stand in for Android's programs."""
    folder.mkdir(exist_ok=True)
    for name, text in (PROGRAMS_OF_A_MOCK | (changes or {})).items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def ask_shell(environment: dict[str, str], tmp_path: Path) -> tuple[Vitals, str]:
    completed = subprocess.run(
        ["sh", "-c", VITALS_SCRIPT, "sh", str(tmp_path / "work"), ""],
        capture_output=True,
        env=environment,
        timeout=30,
        check=False,
    )
    vitals = parse_vitals(completed.stdout.decode())
    assert vitals is not None
    return vitals, completed.stdout.decode()


def test_the_script_asks_it(tmp_path: Path) -> None:
    vitals, text = ask_shell(mock_programs(tmp_path / "bin"), tmp_path)
    assert vitals.ready == Readiness(
        is_plugged=True,
        charge_limit="protect_battery=1",
        doze="IDLE",
        thermal_status=1,
        user=10,
        users=(0, 10),
        update="SystemUpdateInfo (receivedTime = 5)",
        developer=False,
        key_days=7.0,
    )
    assert vitals.clock_s is not None
    assert "Ann" not in text


def test_programs_that_hang_cost_their_answers_alone(tmp_path: Path) -> None:
    hanging = mock_programs(tmp_path / "bin", {"pm": "sleep 20 & wait"})
    vitals, _ = ask_shell(hanging, tmp_path)
    assert (vitals.ready.doze, vitals.ready.developer) == ("IDLE", False)
    assert vitals.ready == replace(vitals.ready, users=(), update=None)
    assert vitals.clock_s is not None


@pytest.mark.parametrize("name", list(map(needing_shell, SHELLS)))
def test_shells_of_devices_ask_it_alike(name: str, tmp_path: Path) -> None:
    """Functions stand in for Android's programs, where these are called from a string, too."""
    device = with_all_programs(name, tmp_path)
    if name == "mksh with toybox":  # Debian's toybox has no sh
        (Path(device.path) / "sh").symlink_to(str(shutil.which("mksh")))
    mocks = "".join(f"{key}() {{ {text}; }}\n" for key, text in PROGRAMS_OF_A_MOCK.items())
    script = VITALS_SCRIPT.replace("$T sh -c '\n", f"sh -c '\n{mocks}")
    assert script != VITALS_SCRIPT
    completed = subprocess.run(
        [*device.shell, "-c", f"set -- {shlex.quote(str(device.workdir))} ''\n{mocks}{script}"],
        capture_output=True,
        env={"PATH": device.path, "TMPDIR": str(tmp_path)},
        timeout=60,
        check=False,
    )
    vitals = parse_vitals(completed.stdout.decode())
    assert vitals is not None
    assert (vitals.ready.doze, vitals.ready.user, vitals.ready.users) == ("IDLE", 10, (0, 10))
    assert (vitals.ready.developer, vitals.ready.charge_limit) == (False, "protect_battery=1")
    assert vitals.ready.update == "SystemUpdateInfo (receivedTime = 5)"
