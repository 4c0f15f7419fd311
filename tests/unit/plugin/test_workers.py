"""For how many devices `-n auto` starts workers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.plugin.selection import Selection

LAB = """schema: 1
devices:
  - {name: a, serial: A, soc: SM8650}
  - {name: b, serial: B, soc: SM8750}
  - {name: c, serial: C, soc: QCS610}  # it has no HTP
  - {name: d, serial: D, soc: SM8750, enabled: false}
"""


def most_workers(lab: Path, *devices: str, backends: tuple[str, ...] = ()) -> int:
    options: Any = SimpleNamespace(lab=lab, axes={"device": devices, "backend": backends})
    return Selection(options).most_workers


@pytest.mark.parametrize(
    ("devices", "backends", "number"),
    [
        ((), (), 3),
        (("a", "b"), (), 2),
        ((), ("htp",), 2),
        ((), ("htp", "cpu"), 3),
        (("c",), ("htp",), 0),
        (("nobody",), (), 0),
    ],
)
def test_a_worker_for_each_device_asked_for_that_fits(
    tmp_path: Path, devices: tuple[str, ...], backends: tuple[str, ...], number: int
) -> None:
    (tmp_path / "devices.yaml").write_text(LAB)
    assert most_workers(tmp_path / "devices.yaml", *devices, backends=backends) == number


def test_not_more_than_this_computer_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    rows = "".join(f"  - {{name: d{number}, serial: S{number}}}\n" for number in range(9))
    (tmp_path / "devices.yaml").write_text(f"schema: 1\ndevices:\n{rows}")
    assert most_workers(tmp_path / "devices.yaml") == 4


def test_without_a_lab_there_is_no_worker(tmp_path: Path) -> None:
    assert most_workers(tmp_path / "devices.yaml") == 0
