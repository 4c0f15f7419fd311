"""Labs of many devices and places: four times as many take four times as long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.lab.devices import AdbDeviceConfig
from harness.lab.inventory import load_lab
from harness.lab.matching import kinds
from harness.labgrid.session import FoundPlaces, Place, Service

pytestmark = pytest.mark.benchmark

FEW, MANY = 3_000, 12_000
MOST = 10.0
"""Of what grows with its square it would be 16."""


def devices(folder: Path, count: int) -> Callable[[], object]:
    file = folder / f"{count}.yaml"
    lines = (
        f"  - {{name: d{n}, serial: s{n}, soc: QCS8550, pool: p{n % 999}}}\n" for n in range(count)
    )
    file.write_text("schema: 1\ndevices:\n" + "".join(lines))
    return lambda: load_lab(file)


def unlike_devices(folder: Path, count: int) -> Callable[[], object]:
    names = [
        AdbDeviceConfig(name=f"d{n}", serial=f"s{n}", soc="QCS8550", tags=(f"t{n}",))
        for n in range(count)
    ]
    return lambda: kinds(names)


def places(folder: Path, count: int) -> Callable[[], object]:
    file = folder / "labgrid.yaml"
    file.write_text("schema: 1\nlabgrid: {coordinator: h, device: {soc: QCS8550}}\ndevices: []\n")
    places_found = FoundPlaces(
        [Place(f"rack-{n}", {}, (Service("adb", "10.0.0.1", 5555),)) for n in range(count)], "me"
    )
    return lambda: load_lab(file, places=lambda request: places_found)


def places_of_a_coordinator(folder: Path, count: int) -> Callable[[], object]:
    """The places of a coordinator, without a connection."""
    from labgrid.remote.generated import labgrid_coordinator_pb2 as pb

    from harness.labgrid.keeper import Coordinator

    coordinator = object.__new__(Coordinator)
    coordinator._lock, coordinator._resources, coordinator._places = threading.Lock(), {}, {}
    coordinator._received_bytes = 0
    for number in range(count):
        name = f"rack-{number}"
        path = pb.Resource.Path(exporter_name=name, group_name="adb", resource_name="adb")
        shown = pb.Resource(path=path, cls="USBSerialPort", avail=True)
        coordinator._apply(pb.UpdateResponse(resource=shown))
        match = pb.ResourceMatch(exporter=name, group="adb", cls="*")
        coordinator._apply(pb.UpdateResponse(place=pb.Place(name=name, matches=[match])))
    return coordinator.places


@pytest.mark.parametrize(
    "of", [devices, unlike_devices, places, places_of_a_coordinator], ids=lambda one: one.__name__
)
def test_four_times_as_many_take_about_four_times_as_long(
    tmp_path: Path, of: Callable[[Path, int], Callable[[], object]]
) -> None:
    seconds = []
    for count in (FEW, MANY):
        read = of(tmp_path, count)
        best = float("inf")
        for _ in range(2):
            start = time.perf_counter()
            read()
            best = min(best, time.perf_counter() - start)
        seconds.append(best)
    ratio = seconds[1] / seconds[0]
    print(f"\n{of.__name__}: {MANY} in {seconds[1]:.2f} s, x {ratio:.1f} of {FEW}")
    assert ratio < MOST
