"""Vital signs of several kinds of systems are read without trust."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given

from harness.lab.facts import LOAD_SCRIPT, VITALS_SCRIPT as SCRIPT, parse_load, parse_vitals
from tests.properties import damaged, reached, reaches

PHONE = """@qnn-harness:boot\r
0f6c9f1e-6d5c-4a55-9df0-0b1c6e9f7a11\r
@qnn-harness:booted\r
1\r
@qnn-harness:uptime\r
86400.51 600000.10\r
@qnn-harness:user\r
2000\r
@qnn-harness:memory\r
MemTotal:       11437584 kB\r
MemFree:          512000 kB\r
MemAvailable:    6291456 kB\r
@qnn-harness:storage\r
Filesystem      1K-blocks     Used Available Use% Mounted on\r
/dev/block/dm-51 233523180 48291176 185100932  21% /data\r
@qnn-harness:writable\r
ok\r
@qnn-harness:battery\r
Current Battery Service state:\r
  AC powered: false\r
  USB powered: true\r
  status: 2\r
  present: true\r
  level: 87\r
  temperature: 312\r
@qnn-harness:supplies\r
@qnn-harness:zones\r
/sys/class/thermal/thermal_zone0/type:cpu-0-0\r
/sys/class/thermal/thermal_zone0/temp:41200\r
/sys/class/thermal/thermal_zone9/type:off\r
/sys/class/thermal/thermal_zone9/temp:-274000\r
/sys/class/thermal/thermal_zone12/type:bcl\r
/sys/class/thermal/thermal_zone12/temp:4200000\r
@qnn-harness:clocks\r
/sys/devices/system/cpu/cpufreq/policy0/scaling_governor:walt\r
/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq:2016000\r
/sys/devices/system/cpu/cpufreq/policy7/scaling_governor:performance\r
/sys/devices/system/cpu/cpufreq/policy7/scaling_max_freq:3187200\r
@qnn-harness:thermal\r
Thermal Status: 3\r
Temperature{mValue=44.5, mType=3, mName=SKIN, mStatus=0}\r
@qnn-harness:doze\r
IDLE\r
@qnn-harness:remoteprocs\r
/sys/class/remoteproc/remoteproc0/name:3000000.remoteproc-adsp\r
/sys/class/remoteproc/remoteproc0/state:running\r
/sys/class/remoteproc/remoteproc1/name:32300000.remoteproc-cdsp\r
/sys/class/remoteproc/remoteproc1/state:crashed\r
@qnn-harness:nodes\r
r /dev/fastrpc-cdsp\r
- /dev/adsprpc-smd\r
@qnn-harness:end\r
"""


def test_a_phone() -> None:
    vitals = parse_vitals(PHONE)
    assert vitals.boot_id == "0f6c9f1e-6d5c-4a55-9df0-0b1c6e9f7a11"
    assert (vitals.booted, vitals.is_root) == (True, False)
    assert vitals.uptime_s == pytest.approx(86400.51)
    assert vitals.free_ram_bytes == 6291456 * 1024
    assert vitals.free_storage_bytes == 185100932 * 1024
    assert vitals.write_problem is None
    assert (vitals.battery_percent, vitals.battery_charging) == (87, True)
    assert (vitals.hottest, vitals.hottest_c) == ("SKIN", 44.5)
    assert (vitals.clock_limit_khz, vitals.governor) == (3187200, "performance")
    assert vitals.remoteprocs["32300000.remoteproc-cdsp"] == "crashed"
    assert vitals.fastrpc == {"fastrpc-cdsp": "r", "adsprpc-smd": ""}
    assert (vitals.thermal_status, vitals.doze) == (3, "IDLE")


def test_what_android_cannot_say_is_unknown() -> None:
    doze = "@qnn-harness:doze\nCan't find service: deviceidle\n"
    vitals = parse_vitals(f"@qnn-harness:thermal\nThermal Status: 7\n{doze}@qnn-harness:end\n")
    assert (vitals.thermal_status, vitals.doze) == (None, None)


def test_an_answer_that_was_cut_is_none() -> None:
    assert parse_vitals(PHONE.partition("@qnn-harness:end")[0]) is None


@reaches(0.6)
@given(damaged(PHONE))
@example(PHONE.replace("level: ", "level: 9"))
def test_any_text_is_survived(text: str) -> None:
    vitals = parse_vitals(f"{text}\n@qnn-harness:end\n")
    if vitals.hottest_c is not None:
        reached()
    assert vitals.battery_percent is None or 0 <= vitals.battery_percent <= 100
    assert vitals.uptime_s is None or vitals.uptime_s >= 0
    assert len(vitals.write_problem or "") <= 300
    parse_load(text)


def tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(script: str, *arguments: object) -> str:
    words = [str(argument) for argument in arguments]
    completed = subprocess.run(["sh", "-c", script, "sh", *words], capture_output=True, check=False)
    return completed.stdout.decode()


def test_the_script_reads_a_board(tmp_path: Path) -> None:
    root = tmp_path / "root"
    tree(
        root,
        {
            "proc/sys/kernel/random/boot_id": "abc\n",
            "proc/uptime": "12.00 40.00\n",
            "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 500 kB\n",
            "sys/class/power_supply/battery/type": "Battery\n",
            "sys/class/power_supply/battery/capacity": "9\n",
            "sys/class/power_supply/battery/status": "Discharging\n",
            "sys/class/power_supply/battery/temp": "305\n",
            "sys/class/thermal/thermal_zone3/type": "cpuss-1\n",
            "sys/class/thermal/thermal_zone3/temp": "61500\n",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "schedutil\n",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "1804800\n",
            "sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq": "off\n",
            "sys/class/remoteproc/remoteproc0/name": "cdsp\n",
            "sys/class/remoteproc/remoteproc0/state": "offline\n",
            "dev/fastrpc-cdsp": "",
        },
    )
    vitals = parse_vitals(run(SCRIPT, tmp_path / "work folder", root))
    assert vitals.boot_id == "abc"
    assert (vitals.uptime_s, vitals.free_ram_bytes) == (12.0, 500 * 1024)
    assert (vitals.battery_percent, vitals.battery_charging) == (9, False)
    assert (vitals.hottest, vitals.hottest_c) == ("cpuss-1", 61.5)
    assert (vitals.clock_limit_khz, vitals.governor) == (1804800, "schedutil")
    assert vitals.remoteprocs == {"cdsp": "offline"}
    assert vitals.fastrpc == {"fastrpc-cdsp": "rw"}
    assert vitals.write_problem is None
    assert list((tmp_path / "work folder").iterdir()) == []


def test_the_script_says_why_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("no folder")
    vitals = parse_vitals(run(SCRIPT, tmp_path / "work", ""))
    assert vitals.write_problem
    assert "irectory" in vitals.write_problem


@pytest.mark.slow
def test_the_script_asks_programs_of_android(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mock = tmp_path / "dumpsys"
    mock.write_text(
        '#!/bin/sh\ncase "$*" in "deviceidle get deep") echo IDLE ;; battery) sleep 20 ;;'
        ' thermalservice) printf "IsStatusOverride: false\\n\\nThermal Status: 1\\n" ;; esac\n'
    )
    mock.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    vitals = parse_vitals(run(SCRIPT, tmp_path / "work", ""))
    assert (vitals.thermal_status, vitals.doze) == (1, "IDLE")


def test_load_of_this_computer() -> None:
    load = parse_load(run(LOAD_SCRIPT, "", ""))
    assert 0 <= load <= 1


def test_load_is_what_was_not_idle() -> None:
    text = (
        "@qnn-harness:before\ncpu  100 0 100 800 0 0 0 0 0 0\n"
        "@qnn-harness:after\ncpu  110 0 120 860 10 0 0 0 0 0\n"
    )
    assert parse_load(text) == pytest.approx(0.3)
