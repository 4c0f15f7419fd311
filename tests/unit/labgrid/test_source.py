"""`labgrid:` in devices.yaml, and what its places are as devices of the lab."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.core.errors import ConfigError
from harness.lab.inventory import load_lab
from harness.labgrid.session import FoundPlaces, Place, PlaceRequest, Service
from harness.labgrid.source import LabgridConfig, PlaceDevice, device_entry
from harness.transport.adb_address import TcpAddress
from tests.logged import Logged
from tests.snapshots import Snapshot

ADBD = Service("adb", "10.0.0.7", 5555)
SSH = Service("NetworkService", "10.0.0.7", 22)
LABGRID = "schema: 1\nlabgrid:\n  coordinator: lab\n  filters: {board: x, rack: 3}\ndevices: []\n"


def lab_of(folder: Path, text: str, *places: Place, user: str = "desk/me"):
    file = folder / "devices.yaml"
    file.write_text(text)
    requests: list[PlaceRequest] = []

    def find(source: LabgridConfig):
        requests.append(source.request)
        return source.devices_of(FoundPlaces(places, user))

    return load_lab(file, find=find), requests


@pytest.mark.parametrize(
    ("place", "known", "device"),
    [
        (Place("Rack/1", {}, [ADBD]), {}, {"name": "rack-1", "serial": "10.0.0.7:5555"}),
        (
            Place("p", {}, [Service("x", "fd::7", 5555)]),
            {},
            {"name": "p", "serial": "[fd::7]:5555"},
        ),
        (
            Place("p", {"adb_serial": "1a2b"}, [Service("x", "pc", 5037)]),
            {},
            {"name": "p", "address": "adb://pc:5037/1a2b"},
        ),
        (Place("p", {}, [SSH, ADBD]), {}, {"name": "p", "serial": "10.0.0.7:5555"}),
        (
            Place("p", {"soc": "SM8650", "board": "x"}, [ADBD]),
            {"soc": "QCS8550", "pool": "v73", "tags": ("lab",)},
            {
                "name": "p",
                "serial": "10.0.0.7:5555",
                "soc": "SM8650",
                "pool": "v73",
                "tags": ("lab",),
            },
        ),
    ],
)
def test_what_a_place_is(place: Place, known, device) -> None:
    assert device_entry(place, PlaceDevice(**known)) == device


@pytest.mark.parametrize(
    "services", [(), (SSH, Service("web", "10.0.0.7", 80))], ids=["none", "two"]
)
def test_a_place_that_is_no_device_is_left_out(
    tmp_path: Path, services: tuple[Service, ...], logged: Logged, snapshot: Snapshot
) -> None:
    lab, _ = lab_of(tmp_path, LABGRID, Place("p", {}, services))
    assert lab.devices == ()
    assert logged.warnings == snapshot


def test_what_is_asked_for(tmp_path: Path) -> None:
    lab, requests = lab_of(tmp_path, LABGRID, Place("p", {"adb_serial": "1a2b"}, [ADBD]))
    assert requests == [PlaceRequest("lab:20408", {"board": "x", "rack": "3"}, 1, 600.0)]
    (device,) = lab.devices
    assert device.server(lab) == TcpAddress("10.0.0.7", 5555)
    assert device.serial == "1a2b"
    assert lab.select(["p"]) == [device]
    other = LABGRID.replace("lab\n", "'[::1]:99'\n  places: 3\n  wait_s: 0\n", 1)
    _, requests = lab_of(tmp_path, other)
    assert requests == [PlaceRequest("[::1]:99", {"board": "x", "rack": "3"}, 3, 0.0)]


def test_what_is_asked_of_a_lab_is_the_same_for_all_of_a_run() -> None:
    config = LabgridConfig(coordinator="lab")
    assert config.request == PlaceRequest("lab:20408", {}, 1, 600.0)
    with pytest.raises(ValidationError, match="frozen"):
        config.places = 2  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        config.device.pool = "x"  # type: ignore[misc]


def test_who_may_use_a_place_that_is_only_looked_at(tmp_path: Path, snapshot: Snapshot) -> None:
    places = [
        Place(name, {}, [ADBD], holder) for name, holder in (("a", "desk/me"), ("b", "desk/bob"))
    ]
    lab, _ = lab_of(tmp_path, LABGRID, *places, Place("c", {}, [ADBD]))
    assert lab.place_of("a").why_not() is None
    assert [lab.place_of(name).why_not() for name in ("b", "c")] == snapshot


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("lab\n", "http://lab\n", "labgrid.coordinator"),
        ("lab\n", "'[::1]:0'\n", "labgrid.coordinator"),
        ("board: x", "Board: x", "labgrid.filters"),
        ("board: x", "board: true", "labgrid.filters"),
        ("board: x", "1: x", "labgrid.filters"),
        ("{board: x, rack: 3}", "[board, rack]", "labgrid.filters"),
        ("lab\n", "lab\n  places: 0\n", "labgrid.places"),
        ("lab\n", "lab\n  wait_s: -1\n", "labgrid.wait_s"),
        ("lab\n", "lab\n  device: {serial: x}\n", "labgrid.device.serial"),
        (LABGRID.partition("\n")[2].partition("devices")[0], "", "devices"),
    ],
)
def test_mistakes(tmp_path: Path, before: str, after: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        lab_of(tmp_path, LABGRID.replace(before, after, 1))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "places",
    [
        [Place("a", {"pool": "x y"}, [ADBD])],
        [Place("/", {}, [ADBD])],
        [Place("a", {}, [ADBD]), Place("A", {}, [ADBD])],
    ],
    ids=["tag", "name", "twice"],
)
def test_places_that_can_be_no_device(
    tmp_path: Path, places: list[Place], snapshot: Snapshot
) -> None:
    with snapshot.raises(ConfigError):
        lab_of(tmp_path, LABGRID, *places)
