"""Devices that a run selects, those of them that share cases, and workers for them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.bench.case_placement import Placement
from harness.core.errors import ConfigError
from harness.plugin.selection import Selection
from tests.snapshots import Snapshot

LAB = """schema: 1
devices:
  - {name: a, serial: A, soc: SM8650, pool: p}
  - {name: b, serial: B, soc: SM8650, pool: p}
  - {name: c, serial: C, soc: SM8650, pool: p, enabled: false}
  - {name: d, serial: D, soc: QCS610}  # it has no HTP
  - {name: e, simulated: true, soc: QCS8550}
"""


def select(
    tmp_path: Path, *devices: str, text: str = LAB, backends: tuple[str, ...] = ()
) -> Selection:
    (lab := tmp_path / "devices.yaml").write_text(text)
    axes = {"device": devices, "backend": backends}
    options: Any = SimpleNamespace(lab=lab, axes=axes, spread=None)
    return Selection(options)


@pytest.mark.parametrize(
    ("names", "devices", "shared"),
    [
        ((), ["a", "b", "d", "e"], ["a", "b"]),
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


def test_cases_spread(tmp_path: Path, snapshot: Snapshot) -> None:
    selection = select(tmp_path, "p")
    for spread, sharing in (("device", {}), ("any", {"a": "any", "b": "any"})):
        options: Any = SimpleNamespace(**vars(selection.options) | {"spread": spread})
        assert Selection(options).sharing == sharing
    options.lab.write_text(LAB.replace("pool: p", "pool: any"))
    with snapshot.raises(ConfigError):
        _ = Selection(options).sharing


def test_a_name_that_is_neither_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        _ = select(tmp_path, "sim-q").devices


@pytest.mark.parametrize(("name", "serial"), [("a", "A"), ("e", None)])
def test_a_device_is_recorded_before_it_was_queried(
    tmp_path: Path, name: str, serial: str | None
) -> None:
    placement = Placement(device=name, backend="htp", qnn="2.51.0", compiler=None)
    record = select(tmp_path).device_record(placement)
    assert (record.name, record.serial, record.simulated) == (name, serial, name == "e")


@pytest.mark.parametrize(
    ("devices", "backends", "number"),
    [
        ((), (), 4),
        (("a", "b"), (), 2),
        ((), ("htp",), 3),
        ((), ("htp", "cpu"), 4),
        (("d",), ("htp",), 0),
        (("nobody",), (), 0),
    ],
)
def test_a_worker_for_each_device_asked_for_that_fits(
    tmp_path: Path, devices: tuple[str, ...], backends: tuple[str, ...], number: int
) -> None:
    assert select(tmp_path, *devices, backends=backends).most_workers == number


def test_not_more_workers_than_this_computer_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    rows = "".join(f"  - {{name: d{number}, serial: S{number}}}\n" for number in range(9))
    selection = select(tmp_path, text=f"schema: 1\ndevices:\n{rows}")
    assert selection.most_workers == 4
    (tmp_path / "devices.yaml").unlink()
    assert Selection(selection.options).most_workers == 0
