"""A phone whose adb on the network ends with a reboot is not rebooted."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.core.errors import InfraError
from harness.lab.attach import OpenLab
from harness.lab.inventory import load_lab
from harness.simulator.device import SimulatedDevice
from harness.simulator.private_server import harness_key
from harness.simulator.programs import device_properties
from tests.faults.breakable import KeptServer


def open_lab(folder: Path, adb: KeptServer, serial: str) -> OpenLab:
    host = {"name": "here", "host": "127.0.0.1", "port": adb.port}
    device = {"name": "desk", "serial": serial, "host": "here"}
    file = folder / "devices.yaml"
    file.write_text(yaml.safe_dump({"schema": 1, "hosts": [host], "devices": [device]}))
    return OpenLab(load_lab(file), key_folder=folder, storage_root=folder / "none")


@pytest.mark.parametrize(
    ("reported", "may"),
    [
        ({}, True),
        ({"service.adb.tls.port": "37251"}, False),
        ({"service.adb.tls.port": "0", "service.adb.tcp.port": "5555"}, False),
        ({"service.adb.tcp.port": "5555", "persist.adb.tcp.port": "5555"}, True),
        ({"service.adb.tcp.port": "-1"}, True),
    ],
)
def test_who_may_be_rebooted(tmp_path: Path, reported: dict[str, str], may: bool) -> None:
    adb = KeptServer(tmp_path)
    adb.start()
    device = SimulatedDevice(
        "desk",
        storage=tmp_path / "storage",
        properties=device_properties("desk", "QCS8550") | reported,
        public_key=harness_key(tmp_path).with_suffix(".pub"),
    )
    try:
        with device, open_lab(tmp_path, adb, device.address) as lab:
            desk = lab.device("desk")
            assert desk.may_reboot, "nothing is known of it yet"
            desk.attach()
            assert desk.may_reboot == may
    finally:
        adb.stop()


def test_a_name_of_mdns_that_nobody_announces(tmp_path: Path) -> None:
    adb = KeptServer(tmp_path)
    adb.start()
    try:
        with open_lab(tmp_path, adb, "adb-1A2B-x._adb-tls-connect._tcp") as lab:
            desk = lab.device("desk")
            assert not desk.may_reboot
            with pytest.raises(
                InfraError, match=r"_tcp cannot be connected|_tcp did not become ready"
            ):
                desk.attach()
    finally:
        adb.stop()
