"""The commands against a real simulated device, as a user types them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.adb.binary import adb_binary

QNN_HARNESS = [sys.executable, "-m", "harness.cli.main"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*QNN_HARNESS, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_devices_says_what_the_device_says(simulated_lab: Path) -> None:
    done = run("devices", "--lab", simulated_lab, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = (row for row in json.loads(done.stdout)["devices"] if row["configured"])
    assert (row["name"], row["state"], row["soc"]) == ("sim-test", "device", "QCS8550")
    assert (row["htp_arch"], row["adreno"], row["target"]) == (73, "740", "linux-x64")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", row["serial"])
    assert row["os_build"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert row["ram_bytes"] == pytest.approx(memory, rel=0.05)
    assert row["free_storage_bytes"] > 10**8


def test_devices_as_a_table(simulated_lab: Path) -> None:
    done = run("devices", "--lab", simulated_lab)
    assert done.returncode == 0, done.stderr
    assert "sim-test" in done.stdout
    assert "v73" in done.stdout


def test_a_device_that_is_not_there_is_the_labs_fault(simulated_lab: Path) -> None:
    simulated_lab.write_text("schema: 1\ndevices:\n  - name: gone\n    serial: 127.0.0.1:9\n")
    done = run("devices", "--lab", simulated_lab, "--json")
    assert done.returncode == 3
    assert "127.0.0.1:9" in done.stderr
    (row,) = (row for row in json.loads(done.stdout)["devices"] if row["configured"])
    assert row["state"] == "unreachable"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["devices", "--lab", "missing.yaml"], 2, "missing.yaml"),
        (["devices", "--nonsense"], 2, "--nonsense"),
        (["simulator", "nobody"], 2, "nobody"),
        (["report", "no-such-run"], 2, "no-such-run"),
        (["runtimes", "fetch", "1.2.3"], 2, "2.51.0"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], code: int, told: str, simulated_lab: Path
) -> None:
    if arguments[0] == "simulator":
        arguments = [*arguments, "--lab", str(simulated_lab)]
    done = run(*arguments)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_simulator_serves_plain_adb_until_ctrl_c(simulated_lab: Path) -> None:
    command = [*QNN_HARNESS, "simulator", "--lab", str(simulated_lab)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        port = re.search(r"ANDROID_ADB_SERVER_PORT=(\d+)", process.stdout.readline())
        assert port is not None
        serial = first.split(" as ")[1].split(";")[0]
        shell = [adb_binary(), "-P", port[1], "-s", serial, "shell"]
        model = subprocess.run(
            [*shell, "getprop ro.soc.model"], capture_output=True, text=True, timeout=20, check=True
        )
        assert model.stdout.strip() == "QCS8550"
        failed = subprocess.run([*shell, "exit 7"], timeout=20, check=False)
        assert failed.returncode == 7
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0
