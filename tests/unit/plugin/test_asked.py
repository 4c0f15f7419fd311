"""Devices that a run selects, and those of them that share cases."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.bench.placement import Placement
from harness.core.errors import ConfigError
from harness.plugin.selection import Selection

LAB = """schema: 1
devices:
  - {name: a, serial: A, soc: SM8650, pool: p}
  - {name: b, serial: B, soc: SM8650, pool: p}
  - {name: c, serial: C, soc: SM8650, pool: p, enabled: false}
  - {name: d, serial: D, soc: SM8650}
"""


def select(tmp_path: Path, *devices: str) -> Selection:
    lab = tmp_path / "devices.yaml"
    lab.write_text(LAB)
    options: Any = SimpleNamespace(lab=lab, axes={"device": devices}, fan_out=None)
    return Selection(options)


@pytest.mark.parametrize(
    ("names", "devices", "shared"),
    [
        ((), ["a", "b", "d"], ["a", "b"]),
        (("p",), ["a", "b"], ["a", "b"]),
        (("d", "p"), ["d", "a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"], []),
        (("p", "b"), ["a", "b"], ["a"]),
    ],
)
def test_devices_are_asked_for_by_name_or_by_pool(
    tmp_path: Path, names: tuple[str, ...], devices: list[str], shared: list[str]
) -> None:
    result = select(tmp_path, *names)
    assert result.device_names == devices
    assert result.sharing == dict.fromkeys(shared, "p")


def test_a_name_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'q' is not in the lab"):
        _ = select(tmp_path, "q").devices


@pytest.mark.parametrize(("name", "serial"), [("a", "A"), ("e", None)])
def test_a_device_is_recorded_before_it_was_queried(
    tmp_path: Path, name: str, serial: str | None
) -> None:
    selection = select(tmp_path)
    with (tmp_path / "devices.yaml").open("a") as lab:
        lab.write("  - {name: e, simulated: true, soc: QCS8550}\n")
    record = selection.device_record(
        Placement(device=name, backend="htp", qnn="2.51.0", compiler=None)
    )
    assert (record.name, record.serial, record.simulated) == (name, serial, name == "e")
