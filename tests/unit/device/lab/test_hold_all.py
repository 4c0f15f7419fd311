"""Several devices are leased in one order, so that two processes never wait for each other."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.device.lab.attach import OpenLab
from harness.device.lab.inventory import load_lab
from harness.device.lab.lease import DeviceHeld, Leases

NAMES = ("a", "b", "c")
SERIALS = ("R5CX1", "R5CX2", "R5CX3")


class Noted(Leases):
    """Leases that remember in which order they were asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, purpose="a test")
        self.asked: list[str] = []

    def take(self, key: str, name: str, *, wait_s: float = 0.0) -> None:
        self.asked.append(key)
        super().take(key, name, wait_s=wait_s)


def opened(folder: Path, serials: tuple[str, ...]) -> tuple[OpenLab, Noted]:
    """A lab of the same devices under names that are its own."""
    file = folder / "devices.yaml"
    entries = "".join(
        f"  - {{name: {name}, serial: {serial}, soc: SM8550}}\n"
        for name, serial in zip(NAMES, serials, strict=True)
    )
    file.write_text(f"schema: 1\ndevices:\n{entries}")
    leases = Noted(folder / "leases")
    return OpenLab(load_lab(file), key_folder=folder, storage_root=folder, leases=leases), leases


def test_whatever_they_are_called_and_however_they_are_asked_for(tmp_path: Path) -> None:
    orders = set()
    for serials, names in itertools.product(
        itertools.permutations(SERIALS), itertools.permutations(NAMES)
    ):
        lab, leases = opened(tmp_path, serials)
        with lab:
            lab.hold_all(iter([*names, names[0]]))
            orders.add(tuple(leases.asked))
    assert len(orders) == 1
    assert len(set(*orders)) == 3


def test_one_that_cannot_be_had_keeps_no_other_back_and_is_told_at_its_use(tmp_path: Path) -> None:
    other, _ = opened(tmp_path, SERIALS)
    lab, leases = opened(tmp_path, SERIALS)
    with other, lab:
        other.device("a").hold()
        lab.hold_all(NAMES)
        assert len(leases.asked) == 3
        with pytest.raises(DeviceHeld):
            lab.device("a").hold()
        for name in ("b", "c"):
            with pytest.raises(DeviceHeld):
                other.device(name).hold()


def test_a_single_one_is_leased_where_it_is_used(tmp_path: Path) -> None:
    lab, leases = opened(tmp_path, SERIALS)
    with lab:
        lab.hold_all(["a", "a"])
    assert leases.asked == []
