"""Devices named by their serials, as adb does, on a real adb server; no devices.yaml names them."""

import json
import shutil
import subprocess
import sys

import onnx
import pytest

from tests.integration.conftest import ContextFor
from tests.integration.device_runs import DeviceRuns
from tests.integration.simulator.conftest import AdbClient, StartDevice
from tests.planted import cnn


@pytest.fixture
def serial(lab: DeviceRuns, adb: AdbClient, start_device: StartDevice) -> str:
    """The serial of a device on the adb server of this computer, in a folder without a lab."""
    lab.environment["ANDROID_ADB_SERVER_PORT"] = str(adb.port)
    lab.file.unlink()
    return start_device().address


def called(lab: DeviceRuns, *words: str, code: int = 0) -> str:
    """The stdout of a command in a new process: the port of adb is read when it starts."""
    command = [sys.executable, "-m", "harness.cli.main", *words]
    completed = subprocess.run(
        command, cwd=lab.folder, env=lab.environment, capture_output=True, text=True, check=False
    )
    assert completed.returncode == code, completed.stderr
    return completed.stdout or completed.stderr


@pytest.mark.slow
def test_serials(lab: DeviceRuns, serial: str, context_for: ContextFor) -> None:
    shutil.copyfile(context_for("tiny", "2.51.0").path, lab.folder / "tiny.bin")
    assert called(lab, "devices", "recover", serial).startswith(f"{serial}: good")
    assert "'1A2B3C4D' is not attached" in called(lab, "devices", "clean", "1A2B3C4D", code=2)
    record = json.loads(called(lab, "run", "tiny.bin", "--json", "--rounds=1", "-s", serial))
    assert record["device"]["serial"] == serial
    lab.environment["ANDROID_SERIAL"] = serial
    assert "MB freed" in called(lab, "devices", "clean")
    fits = json.loads(called(lab, "runtimes", "fit", "tiny.bin", "--json"))
    assert fits["device"] == serial
    onnx.save(cnn(0), lab.folder / "a.onnx")
    layers = json.loads(called(lab, "model", "layers", "a.onnx", "--json"))
    assert layers["first"] is None
    again = json.loads(called(lab, "run", "tiny.bin", "--json", "--rounds=1"))
    assert again["case"] == record["case"]
    name = record["device"]["name"]
    search = ("--case", record["case"], "--axis", "qnn", "--qnn", "2.47.0,2.51.0", "--dry-run")
    for words in ((), ("-s", name)):
        assert f"devices: {name}\n" in called(lab, "bisect", *search, *words)
