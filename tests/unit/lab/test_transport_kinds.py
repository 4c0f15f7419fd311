"""Kinds of devices from plug-ins, and what is wrong with some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.core.errors import ConfigError
from harness.lab.attach import OpenLab
from harness.lab.devices import DeviceConfig, LabInUse
from harness.lab.inventory import load_lab

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
    ("kinds", "problem"),
    [
        ([7], "7 is no subclass of DeviceConfig"),
        ([Path], "is no subclass of DeviceConfig"),
        ([Unnamed], 'Unnamed needs a field `transport: Literal["NAME"]`'),
        ([SecondSsh], "transport 'ssh' is taken already"),
    ],
)
def test_a_mistake_of_a_plug_in_is_an_error_that_names_it(
    kinds: Any, problem: str, add_plug_in: Callable[..., None], lab_file: Path
) -> None:
    add_plug_in("qnn_transports", kinds)
    with pytest.raises(ConfigError, match="plug-in acme: ") as caught:
        load_lab(lab_file)
    assert problem in str(caught.value)


def test_entries_that_agree_in_their_own_keys_are_one_device(
    add_plug_in: Callable[..., None], lab_file: Path
) -> None:
    add_plug_in("qnn_transports", [BenchDevice])
    lab = load_lab(lab_file)
    locations = [device.location(lab) for device in lab.devices]
    assert locations == ["bench 1", "bench 1", "bench 2"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("one", "BenchDevice.open returned 'slot 1', no Transport"),
        ("two", "BenchDevice.open: KeyError: 2"),
    ],
)
def test_a_kind_that_makes_no_transport_is_an_error(
    name: str, problem: str, add_plug_in: Callable[..., None], lab_file: Path, tmp_path: Path
) -> None:
    add_plug_in("qnn_transports", [BenchDevice])
    with OpenLab(load_lab(lab_file), key_folder=tmp_path, storage_root=tmp_path) as lab:
        with pytest.raises(ConfigError) as caught:
            lab.device(name).attach()
        assert f"devices, {name}: {__name__}.{problem}" in str(caught.value)
