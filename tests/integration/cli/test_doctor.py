"""`qnn-harness doctor` as a user types it: on a simulated device, and where the lab is broken."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.core.state_folders import lease_root, quarantine_root
from harness.lab.health import Quarantine
from harness.lab.inventory import load_lab
from harness.lab.lab_device import OpenLab
from harness.lab.lease import Leases
from tests.integration.device_runs import ROOT
from tests.integration.in_process import qnn_harness
from tests.integration.simulator.conftest import AdbClient, StartDevice
from tests.processes import processes_of
from tests.waiting import wait_for

QNN_HARNESS = [sys.executable, "-m", "harness.cli.main"]
NAME = "sim-test"


def run(
    *arguments: object, **settings: str
) -> tuple[subprocess.CompletedProcess[str], dict[tuple[str, str], dict[str, Any]]]:
    """Return its exit code, and the checks of its --json by subject and name."""
    completed = qnn_harness("doctor", *arguments, "--json", environment=os.environ | settings)
    assert "Traceback" not in completed.stderr, completed.stderr
    report = json.loads(completed.stdout) if completed.stdout else {"checks": []}
    if completed.stdout:
        schema = json.loads((ROOT / "docs/schema/doctor.schema.json").read_text())
        jsonschema.validate(report, schema)
    return completed, {(check["subject"], check["name"]): check for check in report["checks"]}


def key_of(lab_file: Path, name: str = NAME) -> str:
    lab = OpenLab(load_lab(lab_file), key_folder=Path("/none"), storage_root=storage())
    return lab.device(name).key


def storage() -> Path:
    return Path(os.environ["QNN_HARNESS_SIMULATED"])


@pytest.mark.slow
def test_a_healthy_simulated_device(simulated_lab: Path) -> None:
    completed, checks = run("--lab", simulated_lab)
    assert completed.returncode == 0, completed.stdout
    assert completed.stderr == ""
    ok = ("reachable", "smoke htp", "DSP session", "FastRPC", "smoke gpu", "probe")
    assert {name: checks[NAME, name]["status"] for name in ok} == dict.fromkeys(ok, "ok")
    assert "libQnnCpu.so" in checks[NAME, "smoke cpu"]["found"]
    assert checks["lab", "devices.yaml"]["status"] == "ok"


def test_wrong_input_is_2(simulated_lab: Path, tmp_path: Path) -> None:
    completed, checks = run("nobody", "--lab", simulated_lab)
    assert (completed.returncode, checks) == (2, {})
    assert "nobody" in completed.stderr
    completed, checks = run("--lab", tmp_path / "missing.yaml")
    assert completed.returncode == 2
    assert checks["lab", "devices.yaml"]["status"] == "fail"
    assert checks["host", "Python"]["status"] == "ok"
    completed, checks = run("--lab", simulated_lab, "--qnn", "9.9.9")
    assert completed.returncode == 1
    assert "9.9.9" in checks[NAME, "runtime"]["found"]


PHONE_AWAY = """schema: 1
hosts: [{name: here, host: 127.0.0.1, port: PORT}]
devices:
  - {name: desk, serial: R5CX, host: here, soc: SM8650-AC, target: android-arm64}
  - {name: other, serial: R6CX, host: here}
"""
BARE = dict.fromkeys(("QAIRT_SDK_ROOT", "QNN_SDK_ROOT"), "")


def test_what_an_unplugged_phone_will_need_is_told(adb: AdbClient, simulated_lab: Path) -> None:
    file = simulated_lab
    file.write_text(PHONE_AWAY.replace("PORT", str(adb.port)))
    Quarantine(quarantine_root(Path("/none"))).put(key_of(file, "desk"), "gone", until="answers")
    completed, checks = run("--lab", file, **BARE)
    assert completed.returncode == 3, completed.stdout
    assert "ziglang" in checks["host", "probe for android-arm64"]["found"]
    assert "unplugged" in checks["desk", "reachable"]["found"]
    assert ("desk", "quarantine") not in checks
    assert "similar: SM8650" in checks["desk", "SoC"]["found"]
    assert "android-arm64" in checks["desk", "probe"]["found"]
    assert "QAIRT_SDK_ROOT" in checks["desk", "runtime"]["advice"]
    assert checks["other", "target"]["status"] == "unknown"
    process = qnn_harness("devices", "list", "--lab", file, "--json")
    rows = {row["name"]: row for row in json.loads(process.stdout)["devices"] if row["configured"]}
    assert [rows[name]["state"] for name in ("desk", "other")] == ["unplugged"] * 2


def test_a_device_that_another_process_holds_is_left_alone(
    adb: AdbClient, start_device: StartDevice, simulated_lab: Path
) -> None:
    file = simulated_lab
    device = start_device()
    file.write_text(
        f"schema: 1\nhosts:\n  - {{name: here, host: 127.0.0.1, port: {adb.port}}}\ndevices:\n"
        f"  - {{name: held, serial: '{device.address}', host: here, soc: QCS8550, "
        f"target: linux-x64, workdir: {device.storage}/work}}\n"
    )
    leases = Leases(lease_root(), purpose="a test")
    leases.acquire(key_of(file, "held"), "held")
    try:
        completed, checks = run("--lab", file)
    finally:
        leases.close()
    assert completed.returncode == 0, completed.stdout
    assert "(a test)" in checks["held", "checked"]["found"]
    assert checks["held", "checked"]["status"] == "unknown"


def test_a_device_in_quarantine_stays_there(simulated_lab: Path) -> None:
    quarantine, key = Quarantine(quarantine_root(Path("/none"))), key_of(simulated_lab)
    quarantine.put(key, "it rebooted all day")
    completed, checks = run("--lab", simulated_lab)
    assert completed.returncode == 1
    assert "it rebooted all day" in checks[NAME, "quarantine"]["found"]
    assert f"recover {NAME}" in checks[NAME, "quarantine"]["advice"]
    assert checks[NAME, "probe"]["status"] == "ok"
    assert checks[NAME, "smoke htp"]["status"] == "unknown"
    assert quarantine.find(key) is not None


@pytest.fixture
def mute_device() -> Iterator[str]:
    """The address of a device that accepts connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.nightly
def test_a_device_that_hangs_does_not_stop_the_others(
    simulated_lab: Path, mute_device: str
) -> None:
    host, port = mute_device.split(":")
    more = f"  - {{name: mute, serial: far, host: slow}}\nhosts:\n  - {{name: slow, host: {host}"
    simulated_lab.write_text(simulated_lab.read_text() + more + f", port: {port}}}\n")
    start = time.monotonic()
    completed, checks = run("--lab", simulated_lab, "--no-smoke", "--timeout", "30s")
    assert time.monotonic() - start < 60
    assert completed.returncode == 1, completed.stdout
    assert checks[NAME, "probe"]["status"] == "ok"
    assert checks["mute", "reachable"]["status"] == "fail"
    assert checks["lab", "adb host slow"]["status"] == "fail"


def test_ctrl_c_leaves_nothing_behind(simulated_lab: Path) -> None:
    process = subprocess.Popen(
        [*QNN_HARNESS, "doctor", "--lab", str(simulated_lab)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    runs = storage() / ".runs"
    wait_for(lambda: any(runs.glob("*/*")), "a device has begun", 30)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out == ""
    wait_for(lambda: not any(runs.iterdir()), "nothing is left", 60)
    assert processes_of(simulated_lab.parent) == {}
