"""A process beside a run reaches the device as the run does."""

from __future__ import annotations

from typing import Any

import pytest

from harness.device.adb.address import SshAddress
from harness.device.adb.device import AdbDevice
from harness.device.adb.server import AdbServer
from harness.device.lab.attach import AttachedDevice
from harness.device.lab.first_contact import transport_of
from harness.device.lab.inventory import Lab
from harness.device.ssh.board import SshBoard
from harness.device.transport.device import Transport
from harness.device.transport.this_computer import ThisComputer
from harness.run.workbench.ahead import DevicePlace
from tests.unit.tools.doctor.test_device_checks import FACTS


@pytest.mark.parametrize(
    ("device", "way"),
    [
        ({"serial": "1A2B"}, AdbDevice),
        ({"address": "ssh://qa@pc:2222/1A2B"}, AdbDevice),
        ({"transport": "ssh", "address": "root@rb3:2222"}, SshBoard),
        ({"transport": "local"}, ThisComputer),
    ],
)
def test_the_way_to_a_device_travels_to_another_process(
    device: dict[str, Any], way: type[Transport]
) -> None:
    lab = Lab.model_validate({"schema": 1, "devices": [{"name": "a", **device}]})
    (config,) = lab.devices
    made = transport_of(lab, config)
    attached = AttachedDevice(config, made, FACTS, "linux-arm64", config.workdir)
    told = DevicePlace.of(attached).model_dump_json()
    again = DevicePlace.model_validate_json(told).transport()
    assert type(again) is type(made) is way
    assert (again.serial, str(again)) == (made.serial, str(made)) or way is ThisComputer
    if isinstance(again, AdbDevice) and isinstance(made, AdbDevice):
        assert again.server == made.server
    if "ssh://" in device.get("address", ""):
        assert isinstance(again, AdbDevice)
        assert again.server == AdbServer(SshAddress("qa@pc", 2222))
