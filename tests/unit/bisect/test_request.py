"""From what a user asks to a search: candidates, what is held, and every kind of wrong input."""

import os
from pathlib import Path
from typing import Any

import pytest

from harness.bisect.request import Request, choose_devices, make_task
from harness.core.errors import ConfigError
from harness.core.matrix_axes import POWER_PROFILES
from harness.core.versions import QNN_WHEELS
from harness.lab.inventory import Lab, load_lab
from harness.runtimes.catalog import Catalog
from tests.snapshots import Snapshot

LAB = """schema: 1
devices:
  - {name: a, simulated: true, soc: QCS8550, target: linux-x64}
  - {name: b-htp-1, simulated: true, soc: QCS8550, target: linux-x64}
  - {name: c, simulated: true, soc: SM8650, target: linux-x64}
  - {name: d, serial: x, soc: SM8650}
"""
CASE = "test_a.py::test_b[a-htp-2.51.0-by-2.48.40-tiny-1]"
QNN = list(QNN_WHEELS)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    (tmp_path / "devices.yaml").write_text(LAB)
    (tmp_path / "test_a.py").write_text("")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    return load_lab(tmp_path / "devices.yaml")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "cache")


def request(**more: Any) -> Request:
    fields = {"case": CASE, "axes": ("qnn",), "lab": Path("devices.yaml"), "reports": Path("r")}
    return Request(**{**fields, **more})


def test_all_there_are_are_candidates_and_the_name_says_what_is_held(
    lab: Lab, catalog: Catalog
) -> None:
    task = make_task(request(), lab, catalog)
    assert list(task.search.candidates) == QNN
    assert (task.held, task.devices, task.backend) == (
        {"compiler": "2.48.40"},
        ("a", "b-htp-1"),
        "htp",
    )
    arguments = task.arguments(("2.50.40",), Path("/r"), ["b-htp-1", "a"])
    assert {"--qnn-version=2.50.40", "--qnn-compiler=2.48.40", "--qnn-device=b-htp-1,a"} <= set(
        arguments
    )
    assert "--qnn-spread=soc" in arguments
    assert arguments[-1] == "test_a.py::test_b"


def test_nothing_that_lies_beside_a_file_of_contexts_is_run(lab: Lab, catalog: Catalog) -> None:
    task = make_task(request(), lab, catalog)
    alone = {"--noconftest", f"--rootdir={task.folder}"}
    arguments = task.arguments(("2.50.40",), Path("/r"), ["a"])
    assert not alone & {*arguments, "-c"}
    case = "../given/m.bin::test_contexts[a-htp-2.50.40-m.bin-resident-1]"
    task = task.model_copy(update={"case": case})
    arguments = task.arguments(("2.50.40",), Path("/r"), ["a"])
    assert alone < {*arguments}
    assert arguments[arguments.index("-c") + 1] == os.devnull
    assert arguments[-1] == "../given/m.bin::test_contexts"


@pytest.mark.parametrize(
    ("more", "candidates"),
    [
        ({"versions": {"qnn": "2.51,2.47"}}, ["2.47.0", "2.51.0"]),
        ({"versions": {"qnn": ">=2.49"}}, QNN[2:]),
        ({"axes": ("compiler",)}, QNN),
        ({"good": "2.48", "bad": "2.50"}, QNN),
        ({"axes": ("power",), "versions": {"power": "all"}}, [*POWER_PROFILES]),
        (
            {"axes": ("power",), "versions": {"power": "power_saver,default,burst"}},
            ["default", "burst", "power_saver"],
        ),
    ],
)
def test_candidates(
    lab: Lab, catalog: Catalog, more: dict[str, Any], candidates: list[str]
) -> None:
    task = make_task(request(**more), lab, catalog)
    assert list(task.search.candidates) == candidates


def test_a_power_profile_is_held_as_in_the_name_of_the_case(lab: Lab, catalog: Catalog) -> None:
    case = CASE.replace("-tiny", "-power-burst-tiny")
    assert case != CASE
    task = make_task(request(case=case), lab, catalog)
    assert task.held == {"compiler": "2.48.40", "power": "burst"}
    assert "--qnn-power=burst" in task.arguments(("2.50.40",), Path("/r"), ["a"])
    other = make_task(request(case=case, versions={"power": "default"}), lab, catalog)
    assert other.held["power"] == "default"


@pytest.mark.parametrize("axes", [(), ("qnn", "ort"), ("ort", "qnn")])
def test_ends_that_name_two_axes_are_a_search_of_their_corners(
    lab: Lab, catalog: Catalog, axes: tuple[str, ...]
) -> None:
    ends = {"good": "ort=1.25.0,qnn=2.48", "bad": "qnn=2.50.40, ort=1.24.1"}
    more = {"versions": {"ort": "1.24.1,1.25.0", "compiler": "2.47"}}
    task = make_task(request(axes=axes, **ends, **more), lab, catalog)
    assert (task.axes, task.held) == (("qnn", "ort"), {"compiler": "2.47.0"})
    assert (task.search.good, task.search.bad) == (("2.48.40", "1.25.0"), ("2.50.40", "1.24.1"))
    assert task.search.versions == {
        "qnn": ("2.48.40", "2.49.40", "2.50.40"),
        "ort": ("1.24.1", "1.25.0"),
    }
    assert task.versions(("2.49.40", "1.25.0")) == {
        "compiler": "2.47.0",
        "qnn": "2.49.40",
        "ort": "1.25.0",
    }


def test_ends_that_name_one_axis_need_no_axis_besides(lab: Lab, catalog: Catalog) -> None:
    task = make_task(request(axes=(), good="qnn=2.47", bad="qnn=2.50"), lab, catalog)
    same = make_task(request(good="2.47", bad="2.50"), lab, catalog)
    assert task == same


PAIRS: dict[str, Any] = {"axes": (), "good": "qnn=2.47,ort=1.24.1", "bad": "qnn=2.51,ort=1.31.1"}


WRONG: list[dict[str, Any]] = [
    {"axes": ("qnm",)},
    {"axes": ()},
    {"repeat": 0},
    {"axes": ("qnn", "ort")},
    {"case": "test_a.py"},
    {"case": "elsewhere/test_a.py::test_b"},
    {"good": "2.12"},
    {"good": "2.47", "versions": {"qnn": "2.48,2.51"}},
    {"good": "2.47", "bad": "2.47"},
    {"good": "2.47,2.51"},
    {"good": "qmm=2.47"},
    {"axes": (), "good": "qmm=2.47"},
    {"good": "qnn=2.47,qnn=2.48"},
    {"good": "ort=1.24.1", "bad": "ort=1.25.0"},
    {**PAIRS, "bad": "qnn=2.51"},
    {**PAIRS, "bad": None},
    {**PAIRS, "bad": "qnn=2.47,ort=1.31.1"},
    {**PAIRS, "bad": "qnn=2.12,ort=1.31.1"},
    {**PAIRS, "versions": {"qnn": ">=2.48"}},
    {**PAIRS, "match": "drift:0"},
    {"good": "qnn=2.47,ort=1.24.1,compiler=2.47", "axes": ()},
    {"match": "measurement x > 2 * good"},
    {"match": "anything"},
    {"match": "drift:0"},
    {"match": "drift:0", "axes": ("compiler",)},
    {"devices": ("a", "c")},
    {"devices": ("d",)},
    {"devices": ("sim-z",)},
    {"versions": {"qnn": " , "}},
    {"versions": {"qnn": "2.47,,2.51"}},
    {"versions": {"compiler": ""}},
    {"versions": {"compiler": "2.47,2.51"}},
]


def test_wrong_input(lab: Lab, catalog: Catalog, snapshot: Snapshot) -> None:
    errors = []
    snapshot.hide(", ".join(QNN), "VERSIONS")
    for more in WRONG:
        with pytest.raises(ConfigError) as error:
            make_task(request(**more), lab, catalog)
        errors.append(error.value)
    assert errors == snapshot


def test_the_case_may_lie_above(
    lab: Lab, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "below")
    task = make_task(request(lab=tmp_path / "devices.yaml"), lab, catalog)
    assert task.folder == tmp_path


def test_where_it_runs(lab: Lab, snapshot: Snapshot) -> None:
    for anywhere in ("a.py::t[tiny]", "a.py::t[any-htp-2.51.0-x]"):
        assert choose_devices(lab, anywhere, []).devices == ("a", "b-htp-1")
    named = choose_devices(lab, "a.py::t[b-htp-1-gpu-2.51.0-x]", [])
    assert (named.devices, named.backend) == (("b-htp-1", "a"), "gpu")
    with snapshot.raises(ConfigError):
        choose_devices(lab, "a.py::t[b-htp-9-htp-2.51.0-x]", [])
    pooled = [
        device.model_copy(update={"pool": "p"})
        for device in lab.devices
        if device.name == "b-htp-1"
    ]
    shared = lab.model_copy(update={"devices": (lab.devices[0], *pooled)})
    assert choose_devices(shared, "a.py::t[p-htp-2.51.0-x]", []).devices[0] == "b-htp-1"


def test_a_version_that_is_a_path_is_told_to_pytest_as_that(
    lab: Lab, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    def resolved(spec: str, target: str, *, field: str | None = None) -> list[str]:
        known = {"/new/lib": ["lib:1.33.0"], "/repo": ["a", "b"]}
        return [name for part in spec.split(",") for name in known.get(part, [part])]

    monkeypatch.setattr(catalog.ort, "resolve", resolved)
    task = make_task(request(axes=("ort",), versions={"ort": "1.31.1,/new/lib"}), lab, catalog)
    assert task.search.candidates == ("1.31.1", "lib:1.33.0")
    arguments = task.arguments(("lib:1.33.0",), tmp_path, ["a"])
    assert {"--qnn-ort=/new/lib", "--qnn-version=2.51.0"} <= set(arguments)
    with snapshot.raises(ConfigError):
        make_task(request(axes=("ort",), versions={"ort": "/repo"}), lab, catalog)
