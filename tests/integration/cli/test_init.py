"""`qnn-harness init` as a user types it, on devices behind a real adb server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.lab.device_config import AdbDeviceConfig
from harness.lab.inventory import load_lab
from tests.faults.breakable import port_of_ones_own
from tests.integration.in_process import qnn_harness
from tests.integration.simulator.conftest import AdbClient, StartDevice, running_server


@pytest.fixture
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbClient]:
    """A server that sees what a test attaches, and nothing that others left there."""
    yield from running_server(tmp_path_factory.mktemp("adb"))


@pytest.fixture
def file(simulated_lab: Path) -> Path:
    """The path of a new lab; folders of state are the test's own."""
    simulated_lab.unlink()
    return simulated_lab


def test_what_adb_sees_is_written_and_can_be_used(
    adb: AdbClient, start_device: StartDevice, file: Path
) -> None:
    device = start_device()
    completed = qnn_harness("init", "--server", f"127.0.0.1:{adb.port}", "--lab", file, code=0)
    assert f"({device.address}): QCS8550, HTP v73, linux-x64: " in completed.stdout
    found, simulated = load_lab(file).devices
    assert isinstance(found, AdbDeviceConfig)
    assert (found.name, found.serial) == ("qcs8550-simulator", device.address)
    assert (found.soc, found.target, simulated.enabled) == ("QCS8550", "linux-x64", False)
    listed = json.loads(qnn_harness("devices", "list", "--lab", file, "--json").stdout)["devices"]
    assert (listed[0]["state"], listed[0]["health"]) == ("device", "good"), listed[0]


def test_nothing_is_overwritten(file: Path) -> None:
    file.write_text("mine")
    completed = qnn_harness("init", "--simulated", "--lab", file)
    assert (completed.returncode, file.read_text()) == (2, "mine")


def test_a_simulated_device_alone(file: Path) -> None:
    server = f"127.0.0.1:{port_of_ones_own()}"
    completed = qnn_harness("init", "--simulated", "--server", server, "--lab", file, code=0)
    assert completed.stdout.endswith("qnn-harness doctor sim-v73\n")
    assert [config.name for config in load_lab(file).enabled_devices()] == ["sim-v73"]
    assert [path.name for path in file.parent.glob("*devices*")] == ["devices.yaml"]


def test_where_nothing_answers_nothing_is_written(adb: AdbClient, file: Path) -> None:
    port = port_of_ones_own()
    completed = qnn_harness("init", "--server", f"127.0.0.1:{port}", "--lab", file, code=3)
    assert f"adb -P {port} start-server`" in completed.stderr
    completed = qnn_harness("init", "--server", f"127.0.0.1:{adb.port}", "--lab", file, code=3)
    assert not file.exists()


def test_a_device_that_was_pulled_out_is_left_out(
    adb: AdbClient, start_device: StartDevice, file: Path
) -> None:
    start_device("gone").stop()
    phone = start_device("kept")
    qnn_harness("init", "--server", f"127.0.0.1:{adb.port}", "--lab", file, code=0)
    assert phone.address in [getattr(device, "serial", None) for device in load_lab(file).devices]


@pytest.mark.parametrize("server", ["127.0.0.1:x", "", ":5037", "a:99999", "a:0"])
def test_an_address_that_is_none(server: str, file: Path) -> None:
    completed = qnn_harness("init", "--server", server, "--lab", file)
    assert (completed.returncode, file.exists()) == (2, False)
