"""The commands against a real simulated device, as a user types them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.state_folders import cache_root, lease_root, simulated_root
from harness.deploy.deploy import Deployer
from harness.lab.health import Quarantine
from harness.lab.inventory import load_lab
from harness.lab.lab_device import OpenLab
from harness.lab.lease import Leases
from harness.transport.adb_server import adb_binary
from tests.conftest import GONE
from tests.integration.in_process import qnn_harness

QNN_HARNESS = [sys.executable, "-m", "harness.cli.main"]


def opened(lab: Path) -> OpenLab:
    cache = cache_root()
    return OpenLab(load_lab(lab), key_folder=cache / "keys", storage_root=simulated_root(cache))


def test_devices_says_what_the_device_says(simulated_lab: Path) -> None:
    completed = qnn_harness("devices", "list", "--lab", simulated_lab, "--json", code=0)
    (row,) = (row for row in json.loads(completed.stdout)["devices"] if row["configured"])
    assert (row["name"], row["state"], row["soc"]) == ("sim-test", "device", "QCS8550")
    assert (row["htp_arch"], row["adreno"], row["target"]) == (73, "740", "linux-x64")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", row["serial"])
    assert row["os_build"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert row["ram_bytes"] == pytest.approx(memory, rel=0.05)
    assert row["free_storage_bytes"] > 10**8


def test_a_device_that_is_not_there_is_the_labs_fault(simulated_lab: Path) -> None:
    simulated_lab.write_text(GONE)
    completed = qnn_harness("devices", "list", "--lab", simulated_lab, "--json", code=3)
    assert completed.stderr == ""
    (row,) = (row for row in json.loads(completed.stdout)["devices"] if row["configured"])
    assert row["state"] == "unreachable"
    assert row["problem"]


def test_devices_clean_removes_what_nobody_uses(simulated_lab: Path, tmp_path: Path) -> None:
    file = tmp_path / "input.raw"
    file.write_bytes(os.urandom(200_000))
    with opened(simulated_lab) as lab:
        device = lab.device("sim-test").attach()
        deployer = Deployer(device.transport, device.workdir)
        folder = Path(deployer.deploy_files("inputs", {"input.raw": file}))
        deployer.deploy_files("again", {"input.raw": file})
    assert (folder / "input.raw").exists()

    # this process lives, so it may still use them
    completed = qnn_harness("devices", "clean", "--lab", simulated_lab, code=0)
    assert f"process {os.getpid()} " in completed.stdout
    assert (folder / "input.raw").exists()

    with opened(simulated_lab) as lab:
        workdir = Path(lab.device("sim-test").attach().workdir)
        (mark,) = workdir.glob("inuse/*")
        content = mark.read_bytes()
        mark.unlink()
    completed = qnn_harness("devices", "clean", "sim-test", "--lab", simulated_lab, code=0)
    assert completed.stdout == "sim-test: 0.2 MB freed, 2 sets removed\n"
    assert not folder.exists()

    # all goes, whoever uses it
    mark.write_bytes(content)
    completed = qnn_harness("devices", "clean", "--all", "--lab", simulated_lab, code=0)
    assert f"process {os.getpid()} on " in completed.stdout
    assert not workdir.exists()


def test_simulator_serves_plain_adb_until_ctrl_c(simulated_lab: Path) -> None:
    command = [*QNN_HARNESS, "simulator", "start", "--lab", str(simulated_lab)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        first = process.stdout.readline()
        socket = re.search(r"ADB_SERVER_SOCKET=(localfilesystem:\S+)", process.stdout.readline())
        serial = first.split(" as ")[1].split(";")[0]
        shell = [adb_binary(), "-L", socket[1], "-s", serial, "shell"]
        model = subprocess.run(
            [*shell, "getprop ro.soc.model"], capture_output=True, text=True, timeout=60, check=True
        )
        assert model.stdout.strip() == "QCS8550"
        failed = subprocess.run([*shell, "exit 7"], timeout=60, check=False)
        assert failed.returncode == 7
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0


def test_healing_goes_on_past_a_device_that_is_held(simulated_lab: Path) -> None:
    more = "  - {name: sim-other, simulated: true, soc: QCS8550}\n"
    simulated_lab.write_text(simulated_lab.read_text() + more)
    with opened(simulated_lab) as lab:
        key = lab.device("sim-test").key
    leases = Leases(lease_root(), purpose="a test")
    leases.acquire(key, "sim-test")
    completed = qnn_harness("devices", "recover", "sim-test", "sim-other", "--lab", simulated_lab)
    leases.close()
    assert completed.returncode == 3
    assert "(a test)" in completed.stderr
    assert completed.stdout == "sim-other: good\n"


def test_a_device_that_answers_and_is_bad_is_a_negative_answer(
    simulated_lab: Path, tmp_path: Path
) -> None:
    assert qnn_harness("devices", "list", "--lab", simulated_lab).returncode == 0
    workdir = tmp_path / "simulated/sim-test/data/local/tmp/qnn-harness"
    subprocess.run(["rm", "-rf", workdir], check=True)
    workdir.parent.mkdir(parents=True, exist_ok=True)
    workdir.write_text("a file where its work folder should be")
    completed = qnn_harness("devices", "list", "--lab", simulated_lab)
    assert (completed.returncode, "sim-test: " in completed.stdout) == (1, True)


def test_a_quarantine_that_cannot_be_read_says_what_to_do(
    simulated_lab: Path, tmp_path: Path
) -> None:
    (tmp_path / "quarantine").write_text("a file where the folder should be")
    completed = qnn_harness("devices", "list", "--lab", simulated_lab)
    assert (completed.returncode, "sim-test" in completed.stdout) == (3, True)
    assert "QNN_HARNESS_QUARANTINE" in completed.stderr


def test_why_a_device_is_in_quarantine_is_told(simulated_lab: Path, tmp_path: Path) -> None:
    with opened(simulated_lab) as lab:
        key = lab.device("sim-test").key
    entry = Quarantine(tmp_path / "quarantine").put(key, "it rebooted all day")
    completed = qnn_harness("devices", "list", "--lab", simulated_lab, code=1)
    for text in (entry.since, "it rebooted all day", "qnn-harness devices recover sim-test"):
        assert str(text) in completed.stdout
    # which ends it, once our probe has run there
    assert qnn_harness("devices", "recover", "sim-test", "--lab", simulated_lab).returncode == 0
    assert list((tmp_path / "simulated").rglob("sets/probe-*/qnn-probe"))
    assert qnn_harness("devices", "list", "--lab", simulated_lab).returncode == 0
