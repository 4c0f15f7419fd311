"""From options and markers to placements and axes."""

from pathlib import Path

import pytest

from harness.bench.case_placement import Placement
from harness.core.errors import ConfigError, VersionError
from harness.core.matrix_axes import check_names
from harness.lab.device_config import AdbDeviceConfig, DeviceConfig, SimulatedDeviceConfig
from harness.models.builtin_models import Model
from harness.models.context_file import ContextFile
from harness.plugin.axes import (
    DeviceRuntimes,
    axis_value,
    chosen_backends,
    device_runtimes,
    placements,
    sources_of,
    takes_compiled,
)
from harness.runtimes.aar import AarSource
from harness.runtimes.catalog import Catalog
from tests.integration.runtimes.maven_server import make_aar
from tests.snapshots import Snapshot
from tests.unit.runtimes.elf_files import elf_file

V73 = SimulatedDeviceConfig(name="a", soc="QCS8550")
HTP = {"backend": ["htp"]}
V75 = AdbDeviceConfig(name="b", serial="1", soc="SM8650")


def runtimes_of(compilers: dict[str, dict[str, list[str]]]) -> DeviceRuntimes:
    return DeviceRuntimes(compilers, {}, ())


def test_without_compilers_each_runtime_gets_its_own() -> None:
    places, reasons = placements(
        [V73], {}, HTP, runtimes_of({"a": {"2.47.0": ["2.47.0"], "2.51.0": ["2.51.0"]}})
    )
    assert [(place.qnn, place.compiler) for place in places] == [
        ("2.47.0", "2.47.0"),
        ("2.51.0", "2.51.0"),
    ]
    assert not reasons


def test_an_engine_that_there_is_not_is_the_tests_mistake(snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        placements([V73], {"engine": "tflite"}, HTP, runtimes_of({"a": {"2.51.0": ["2.51.0"]}}))


NEWEST = "2.51.0"


@pytest.mark.parametrize("target", [None, "android-arm64", "linux-arm64"])
@pytest.mark.parametrize("spec", [NEWEST, f"phones:{NEWEST}", "all"])
def test_a_runtime_has_one_name(target: str | None, spec: str, tmp_path: Path) -> None:
    """On a phone of unknown target it had two, and every case ran twice."""
    library = elf_file(android_api=21, content=b"v2.51.0.260101000000\0")
    (tmp_path / "qnn.aar").write_bytes(make_aar({"libQnnHtp.so": library}))
    phones = AarSource("phones", tmp_path / "qnn.aar", tmp_path / "cache", version=NEWEST)
    catalog = Catalog(tmp_path / "cache", sources=[phones])
    device = DeviceConfig.model_validate({"name": "a", "serial": "1", "target": target})
    if (spec, target) == (f"phones:{NEWEST}", "linux-arm64"):
        with pytest.raises(VersionError):
            device_runtimes(catalog, [device], {"qnn": [spec]})
        return
    runtimes = device_runtimes(catalog, [device], {"qnn": [spec]}).compilers["a"]
    alone = target == "android-arm64" or (target is None and spec != "all" and ":" in spec)
    named = f"phones:{NEWEST}" if alone else NEWEST
    assert [name for name in runtimes if name.endswith(NEWEST)] == [named]


def test_the_whole_matrix_in_a_stable_order() -> None:
    places, _ = placements(
        [V73, V75],
        {},
        {"backend": ["htp", "gpu"]},
        runtimes_of({name: {"2": ["1", "2"], "3": ["1", "2"]} for name in "ab"}),
    )
    assert len(places) == len(set(places)) == 16
    assert places[0] == Placement(device="a", backend="htp", qnn="2", compiler="1")
    assert [str(place) for place in places[:2]] == ["a-htp-2-by-1", "a-htp-2"]


@pytest.mark.parametrize(
    ("profiles", "htp", "cpu"),
    [
        ([], [None], [None]),
        (["default"], [None], [None]),
        (["default", "burst", "burst"], [None, "burst"], [None]),
        (["burst", "balanced"], ["burst", "balanced"], []),
    ],
)
def test_only_htp_votes_for_power(
    profiles: list[str], htp: list[str | None], cpu: list[str | None]
) -> None:
    axes = {"backend": ["htp", "cpu"], "power": profiles}
    places, reasons = placements([V73], {}, axes, runtimes_of({"a": {"2": ["2"]}}))
    assert [place.power for place in places if place.backend == "htp"] == htp
    assert [place.power for place in places if place.backend == "cpu"] == cpu
    only = "it needs power default on cpu, not burst, balanced"
    assert reasons == ([] if cpu else [only])


def test_a_name_that_its_axis_does_not_have(snapshot: Snapshot) -> None:
    check_names({"device": ["any"], "backend": ["htp", "cpu"], "qnn": ["latest"], "ort": []})
    with snapshot.raises(ConfigError):
        check_names({"device": ["any"], "backend": ["htp", "npu"]})
    with snapshot.raises(ConfigError):
        check_names({"power": ["burst", "fast"]})


def test_what_does_not_fit_says_why() -> None:
    places, reasons = placements(
        [V73, V75], {"htp_arch": 75}, HTP, runtimes_of({"a": {"1": ["1"]}, "b": {"1": ["1"]}})
    )
    assert [place.device for place in places] == ["b"]
    assert len(reasons) == 1
    assert "a" in reasons[0]
    assert "73" in reasons[0]


def test_a_required_backend_that_was_not_asked_for() -> None:
    places, reasons = placements([V73], {"backend": "gpu"}, HTP, runtimes_of({"a": {"1": ["1"]}}))
    assert not places
    assert "gpu" in reasons[0]


@pytest.mark.parametrize(
    ("named", "option", "chosen"),
    [
        ((), (), ("htp",)),
        ((), ("gpu", "cpu"), ("gpu", "cpu")),
        (("gpu",), (), ("gpu",)),
        (("htp", "gpu", "cpu"), ("cpu",), ("cpu",)),
        (("htp", "gpu"), ("cpu",), ()),
    ],
)
def test_backends(named: tuple[str, ...], option: tuple[str, ...], chosen: tuple[str, ...]) -> None:
    assert chosen_backends(named, option) == chosen


def test_a_device_without_htp_runs_what_the_test_names_besides(snapshot: Snapshot) -> None:
    board = AdbDeviceConfig(name="a", serial="1", soc="QCS610")
    places, reasons = placements(
        [board], {"backend": ("htp", "gpu")}, {}, runtimes_of({"a": {"1": ["1"]}})
    )
    assert [place.backend for place in places] == ["gpu"]
    assert reasons == snapshot


def test_axes_are_json() -> None:
    assert axis_value(3) == 3
    assert axis_value(Model("tiny")) == "tiny"
    assert axis_value((Model("io-heavy", 56), "x")) == ["io-heavy-56mb", "x"]


def test_sources_among_parameters(tmp_path: Path) -> None:
    tiny, heavy, file = Model("tiny"), Model("io-heavy", 56), ContextFile("a/model.bin")
    sources = sources_of({"a": 1, "b": tiny, "c": (heavy, tiny), "d": [file]}, tmp_path)
    assert sources == (tiny, heavy, ContextFile(tmp_path / "a/model.bin"))
    assert str(sources[2]) == "model.bin"


FILE, TINY = ContextFile("model.bin"), Model("tiny")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], True),
        ([1, "model.bin"], True),
        ([[FILE]], False),
        ([[(FILE, 2)], [1, 2]], False),
        ([[pytest.param(FILE, id="mine")]], False),
        ([[FILE, TINY]], True),
    ],
)
def test_who_wants_a_compiler(values: list[object], expected: bool) -> None:
    assert takes_compiled(values) is expected


def test_files_have_no_compiler() -> None:
    runtimes = {"a": {"2.47.0": ["2.47.0", "2.51.0"], "sdk:2.31.0": []}}
    places, _ = placements([V73], {"qnn": ["2.47.0"]}, HTP, runtimes_of(runtimes), compiled=False)
    assert [str(place) for place in places] == ["a-htp-2.47.0", "a-htp-sdk:2.31.0"]
    assert {place.compiler for place in places} == {None}
    compiled, _ = placements([V73], {}, HTP, runtimes_of(runtimes))
    assert [str(place) for place in compiled] == ["a-htp-2.47.0", "a-htp-2.47.0-by-2.51.0"]
