"""Kinds of devices from plug-ins, and what is wrong with some."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from harness.core.errors import ConfigError
from harness.lab.device_config import (
    DeviceConfig,
    DeviceSource,
    LabInUse,
    SourceDevice,
    device_address,
)
from harness.lab.inventory import load_lab
from harness.lab.lab_device import OpenLab
from tests.snapshots import Snapshot

LAB = """schema: 1
devices:
  - {name: one, transport: bench, slot: 1, power: switch 1}
  - {name: alias, transport: bench, slot: 1}
  - {name: two, transport: bench, slot: 2}
"""


class BenchDevice(DeviceConfig):
    transport: Literal["bench"]
    slot: int

    def open(self, lab: LabInUse) -> Any:
        return {1: "slot 1"}[self.slot]


class Bench:
    name = "slot 7"
    lease_key = None
    has_power_port = False

    def why_not(self) -> str:
        return "it is being cleaned"

    def power_cycle(self) -> None:
        raise NotImplementedError


class BenchSlots(DeviceSource):
    section = "bench"
    freed: ClassVar[list[str]] = []
    soc: str

    @property
    def most(self) -> int:
        return 1

    def find(self) -> Iterator[SourceDevice]:
        yield SourceDevice({"name": "seven", "serial": "7", "soc": self.soc}, Bench())

    def reserve(self, until: ExitStack) -> Iterator[SourceDevice]:
        until.callback(self.freed.append, self.soc)
        return self.find()


class NoSection(DeviceSource):
    pass


class SecondHosts(DeviceSource):
    section = "hosts"


class SecondSsh(DeviceConfig):
    transport: Literal["ssh"]


class Unnamed(DeviceConfig):
    pass


@pytest.fixture
def lab_file(tmp_path: Path) -> Path:
    path = tmp_path / "devices.yaml"
    path.write_text(LAB)
    return path


@pytest.mark.parametrize(
    "kinds",
    [[7], [Unnamed], [SecondSsh], NoSection, [SecondHosts]],
    ids=["no-class", "unnamed", "second-ssh", "no-section", "second-hosts"],
)
def test_a_mistake_of_a_plug_in_is_an_error_that_names_it(
    kinds: Any, add_plug_in: Callable[..., None], lab_file: Path, snapshot: Snapshot
) -> None:
    add_plug_in("qnn_transports", kinds)
    with snapshot.raises(ConfigError):
        load_lab(lab_file)


def test_entries_that_agree_in_their_own_keys_are_one_device(
    add_plug_in: Callable[..., None], lab_file: Path
) -> None:
    add_plug_in("qnn_transports", [BenchDevice])
    lab = load_lab(lab_file)
    locations = [device.location(lab) for device in lab.devices]
    assert locations == ["bench 1", "bench 1", "bench 2"]


def test_a_source_adds_a_section_whose_devices_are_found_or_reserved(
    add_plug_in: Callable[..., None], lab_file: Path, snapshot: Snapshot
) -> None:
    add_plug_in("qnn_transports", BenchSlots)
    lab_file.write_text("schema: 1\nbench: {soc: SM8650}\ndevices: []\n")
    with ExitStack() as until:
        for lab in (load_lab(lab_file), load_lab(lab_file, find=lambda s: s.reserve(until))):
            assert [(device.name, device.soc) for device in lab.devices] == [("seven", "SM8650")]
            assert lab.place_of("seven") is not None
        assert not BenchSlots.freed
    assert BenchSlots.freed == ["SM8650"]
    assert load_lab(lab_file, find=None).devices == ()
    lab_file.write_text("schema: 1\nbench: {soc: 7, slots: 2}\ndevices: []\n")
    with snapshot.raises(ConfigError):
        load_lab(lab_file)


def test_a_kind_that_makes_no_transport_is_an_error(
    add_plug_in: Callable[..., None], lab_file: Path, tmp_path: Path, snapshot: Snapshot
) -> None:
    add_plug_in("qnn_transports", [BenchDevice])
    with OpenLab(load_lab(lab_file), key_folder=tmp_path, storage_root=tmp_path) as lab:
        for name in ("one", "two"):
            with snapshot.raises(ConfigError):
                lab.device(name).attach()


def key(serial: str, host: str = "127.0.0.1", port: int = 5037) -> str:
    return device_address(serial, host, port)


@pytest.mark.parametrize(
    "spellings",
    [
        [*("127.0.0.1:5555", "localhost:5555", "LocalHost:5555", "localhost.:5555"), "[::1]:5555"],
        ["[2001:db8::17]:5555", "[2001:DB8:0:0::17]:5555"],
        ["farm-7.example.com:4000", "FARM-7.example.com.:4000"],
        ["[fe80::1%eth0]:5555", "[FE80:0::1%eth0]:5555"],
    ],
    ids=lambda spellings: spellings[0],
)
def test_one_address_however_written(spellings: list[str]) -> None:
    assert {key(serial) for serial in spellings} == {key(spellings[0])}


def test_different_devices_stay_different() -> None:
    serials = (
        "127.0.0.1:5555",
        "127.0.0.1:5556",
        "127.0.0.2:5555",  # the near end of a tunnel, say
        "[fe80::1%eth0]:5555",
        "[fe80::1%eth1]:5555",
        "R5CX1234",
        "r5cx1234",
    )
    assert len({key(serial) for serial in serials}) == len(serials)


def test_an_address_is_that_of_the_computer_with_the_server() -> None:
    here = key("R5CX1234")
    assert key("R5CX1234", "localhost") == key("R5CX1234", "::1") == here
    assert len({here, key("R5CX1234", port=5038), key("R5CX1234", "lab-pc")}) == 3
    assert key("R5CX1234", "LAB-PC.") == key("R5CX1234", "lab-pc")
    # any server reaches the same device over the network
    assert key("192.0.2.17:5555", "lab-pc") == key("192.0.2.17:5555", port=5038)
    # what lab-pc calls localhost is not this computer
    assert key("localhost:5555", "lab-pc") == key("127.0.0.1:5555", "lab-pc")
    assert key("localhost:5555", "lab-pc") != key("localhost:5555")
