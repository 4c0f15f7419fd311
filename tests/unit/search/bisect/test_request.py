"""From what a user asks to a search: candidates, what is held, and every kind of wrong input."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.device.lab.inventory import Lab, load_lab
from harness.ground.errors import ConfigError
from harness.ground.facts.engines import ENGINES, QNN as QNN_ENGINE
from harness.ground.facts.versions import QNN_WHEELS
from harness.libraries.runtimes.catalog import Catalog
from harness.search.bisect.case_run import task_of
from harness.search.bisect.log import read_log, to_line
from harness.search.bisect.request import Request, begin, other_kinds
from harness.search.bisect.search import AxisSpec, GridSpec
from harness.search.bisect.versions import versions_from, where_to_run
from tests.logged import Logged
from tests.unit.answers.history.runs import attempt, run_folder

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


def asked(**more: Any) -> Request:
    fields = {"case": CASE, "axes": ("qnn",), "lab": Path("devices.yaml"), "reports": Path("r")}
    return Request(**{**fields, **more})


def test_all_there_are_are_candidates_and_the_name_says_what_is_held(
    lab: Lab, catalog: Catalog
) -> None:
    (begun,) = begin(asked(), lab, catalog)
    assert isinstance(begun.spec, AxisSpec)
    assert list(begun.spec.candidates) == QNN
    task = task_of(read_log(to_line(begun)))
    assert (task.held, task.devices, task.backend) == (
        {"compiler": "2.48.40"},
        ("a", "b-htp-1"),
        "htp",
    )
    arguments = task.arguments(("2.50.40",), Path("/r"), ["b-htp-1", "a"])
    assert {"--qnn=2.50.40", "--compiler=2.48.40", "--device=b-htp-1,a"} <= set(arguments)
    assert "--each-soc" in arguments, "what one of them finds out is told of none by name"
    assert arguments[-1] == "test_a.py::test_b"


def test_a_flaky_case_is_asked_often_or_refused_where_no_version_is_to_blame(
    lab: Lab, catalog: Catalog, logged: Logged
) -> None:
    ends = ("passed", "failed", "passed", "failed")
    for ended in ends:
        said = (f"x {ended}", f"y {ended}", "z passed")
        run_folder(Path("r"), *(attempt(one, file="test_a.py", device="a") for one in said))
        run_folder(Path("r"), attempt("y@2.50.40 passed", file="test_a.py", device="a"))
    kept: dict[str, Any] = {"measurement": "measurement load_us > 9", "code": "code=1002"}
    for name, more, repeat in (
        ("x", {"repeat": "auto"}, "auto"),
        ("x", {"repeat": 1}, 1),
        ("x", {"match": kept["measurement"]}, 1),
        ("x", {"axes": ("device",), "qnn": "2.51.0", "devices": ("a", "b-htp-1")}, 1),
        ("y", {}, "auto"),
        ("y", {"match": kept["code"]}, "auto"),
        ("z", {}, 1),
    ):
        case = attempt(f"{name} passed", file="test_a.py", device="a").case
        assert case.startswith("test_a.py::"), case
        versions = {"qnn": more.pop("qnn")} if "qnn" in more else None
        begun = begin(asked(case=case, versions=versions, **more), lab, catalog)
        assert begun[0].spec.repeat == repeat, (name, more)
    assert [text.partition(": flaky: ")[0] for text in logged.warnings] == [
        "each is run as often as it takes (--repeat auto)"
    ] * 2
    case = attempt("x passed", file="test_a.py", device="a").case
    with pytest.raises(
        ConfigError, match=r"2 of 4 attempts failed .* it is not the version; --repeat auto"
    ):
        begin(asked(case=case), lab, catalog)


def test_nothing_that_lies_beside_a_file_of_contexts_is_run(lab: Lab, catalog: Catalog) -> None:
    (begun,) = begin(asked(), lab, catalog)
    task = task_of(read_log(to_line(begun)))
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
    ("more", "repeat"),
    [
        ({"match": "measurement load_us > 1.1 * good"}, "judged"),
        ({"match": "measurement load_us > 1.1 * good", "repeat": 1}, 1),
        ({"match": "measurement load_us > 1.1 * good", "repeat": "auto"}, "auto"),
        ({"match": "measurement load_us > 500"}, 1),
        ({"match": "code=1002"}, 1),
        ({}, 1),
    ],
)
def test_noise_is_judged_unless_something_else_is_asked_for(
    lab: Lab,
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    logged: Logged,
    more: dict[str, Any],
    repeat: int | str,
) -> None:
    (begun,) = begin(asked(good=QNN[0], **more), lab, catalog)
    assert begun.spec.repeat == repeat
    assert read_log(to_line(begun)).spec == begun.spec
    monkeypatch.setitem(sys.modules, "scipy", None)
    (begun,) = begin(asked(good=QNN[0], **more), lab, catalog)
    assert begun.spec.repeat == (1 if repeat == "judged" else repeat)
    assert ("single answer is believed" in str(logged.warnings)) == (repeat == "judged")


def test_what_is_suspected_is_part_of_the_search(lab: Lab, catalog: Catalog) -> None:
    (begun,) = begin(asked(prior=["2.50=5", "2.48.40=0.5"]), lab, catalog)
    assert isinstance(begun.spec, AxisSpec)
    assert begun.spec.prior == {"2.50.40": 5.0, "2.48.40": 0.5}


@pytest.mark.parametrize(
    ("more", "candidates"),
    [
        ({"candidates": "2.51,2.47"}, ["2.47.0", "2.51.0"]),
        ({"versions": {"qnn": ">=2.49"}}, QNN[2:]),
        ({"axes": ("compiler",)}, QNN),
        ({"good": "2.48", "bad": "2.50"}, QNN),
    ],
)
def test_candidates(
    lab: Lab, catalog: Catalog, more: dict[str, Any], candidates: list[str]
) -> None:
    (begun,) = begin(asked(**more), lab, catalog)
    assert isinstance(begun.spec, AxisSpec)
    assert list(begun.spec.candidates) == candidates


def test_a_third_axis_is_held_at_each_of_its_values(lab: Lab, catalog: Catalog) -> None:
    more = {"axes": ("ort", "qnn"), "versions": {"ort": "1.24.1,1.31.1", "compiler": "2.47,2.51"}}
    begun = begin(asked(**more), lab, catalog)
    assert [one.spec.held for one in begun] == [{"compiler": "2.47.0"}, {"compiler": "2.51.0"}]
    assert isinstance(begun[0].spec, GridSpec)
    assert begun[0].spec.rows == ("1.24.1", "1.31.1")


def test_each_device_or_kind_of_them_has_searches_of_its_own(lab: Lab, catalog: Catalog) -> None:
    devices = ("a", "b-htp-1", "c")
    each = begin(asked(axes=("device", "qnn"), devices=devices, good="2.47"), lab, catalog)
    tasks = [task_of(read_log(to_line(one))) for one in each]
    assert [(one.on, one.devices) for one in tasks] == [(name, (name,)) for name in devices]
    kinds = begin(asked(axes=("qnn", "soc"), devices=devices), lab, catalog)
    tasks = [task_of(read_log(to_line(one))) for one in kinds]
    assert [(one.on, one.devices) for one in tasks] == [
        ("qcs8550", ("a", "b-htp-1")),
        ("sm8650-linux-x64", ("c",)),
    ]
    assert all(isinstance(one.spec, AxisSpec) and one.spec.axis == "qnn" for one in kinds)
    pairs = begin(asked(axes=("qnn", "compiler", "soc"), devices=devices), lab, catalog)
    assert all(isinstance(one.spec, GridSpec) for one in pairs)
    held = {"compiler": "2.47,2.51"}
    four = begin(asked(axes=("qnn", "soc"), devices=devices, versions=held), lab, catalog)
    assert [one.spec.held["compiler"] for one in four] == ["2.47.0", "2.51.0"] * 2


def test_each_engine_is_asked_of_the_case_that_the_file_has_with_it(
    lab: Lab, catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "m.pte").write_text("")
    case = "m.pte::test_contexts[a-htp-2.48.40-m.pte-window-3]"
    each = begin(asked(case=case, axes=("engine",)), lab, catalog)
    tasks = [task_of(read_log(to_line(one))) for one in each]
    assert [one.engine for one in tasks] == [one.on for one in tasks] == list(ENGINES)
    assert {one.devices for one in tasks} == {("a", "b-htp-1")}
    others = [f"m.pte::{one.test}" for one in ENGINES.values() if one is not QNN_ENGINE]
    assert [one.case for one in tasks] == [case, *others]
    assert {one.spec.candidates for one in each if isinstance(one.spec, AxisSpec)} == {("2.48.40",)}
    searched = begin(asked(case=case, axes=("engine", "qnn")), lab, catalog)
    assert all(isinstance(one.spec, AxisSpec) and one.spec.axis == "qnn" for one in searched)


@pytest.mark.parametrize(("given", "version"), [({}, "2.51.0"), ({"qnn": "2.48"}, "2.48.40")])
def test_of_devices_alone_each_is_asked_one_version(
    lab: Lab, catalog: Catalog, given: dict[str, str], version: str
) -> None:
    both = begin(asked(axes=("device",), devices=("a", "c"), versions=given), lab, catalog)
    assert [task_of(read_log(to_line(one))).on for one in both] == ["a", "c"]
    for one in both:
        assert isinstance(one.spec, AxisSpec)
        assert (one.spec.candidates, one.spec.held) == ((version,), {"compiler": "2.48.40"})


def test_versions_from_a_file(lab: Lab, catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "versions"
    file.write_text("# nightly\n2.47.0\n\n  2.49.40 # the good one\n2.51.0\n")
    assert versions_from(file) == ["2.47.0", "2.49.40", "2.51.0"]
    (begun,) = begin(asked(candidates_file=file), lab, catalog)
    assert isinstance(begun.spec, AxisSpec)
    assert begun.spec.candidates == ("2.47.0", "2.49.40", "2.51.0")
    file.write_text("# none\n\n")
    with pytest.raises(ConfigError, match="lists no version"):
        begin(asked(candidates_file=file), lab, catalog)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"axes": ("qnm",)}, "unknown axis"),
        ({"axes": ("qnn", "qnn")}, "one axis is searched, or two"),
        ({"axes": ("qnn", "ort", "compiler")}, "one axis is searched, or two"),
        ({"case": "test_a.py"}, "is no case"),
        ({"case": "elsewhere/test_a.py::test_b"}, "there is no file"),
        ({"good": "2.12"}, "--good"),
        ({"good": "2.47", "candidates": "2.48,2.51"}, "not one of the candidates"),
        ({"good": "2.47", "bad": "2.47"}, "cannot be good and bad"),
        ({"good": "2.47,2.51"}, "not one version of each axis"),
        ({"axes": ("ort", "qnn"), "bad": "1.24.1,2.47.0"}, "corners"),
        ({"axes": ("ort", "qnn"), "candidates": "2.47,2.48"}, "each its own"),
        ({"match": "measurement x > 2 * good"}, "--good"),
        ({"match": "anything"}, "--match"),
        ({"match": "drift:0"}, "--good"),
        ({"match": "drift:0", "axes": ("compiler",)}, "--axis: .*what QNN versions make"),
        ({"match": "drift:0", "axes": ("ort", "qnn")}, "--axis: .*what QNN versions make"),
        ({"devices": ("a", "c")}, "cannot stand in"),
        ({"devices": ("d",)}, "no target"),
        ({"devices": ("z",)}, "not in the lab"),
        ({"repeat": 0}, "--repeat: .*greater than or equal"),
        ({"max_runs": 0}, "--max-runs: .*greater than or equal"),
        ({"patience": 0}, "--patience: .*greater than or equal"),
        ({"repeat": "auto", "confidence": 1.5}, "--confidence: .*less than 1"),
        ({"repeat": "auto", "confidence": float("nan")}, "--confidence: "),
        ({"prior": ["2.50.40"]}, "--prior: '2.50.40' is not of the form"),
        ({"prior": ["2.50.40=0"]}, "--prior: .*above 0"),
        ({"prior": ["2.50.40=nan"]}, "--prior: .*above 0"),
        ({"prior": ["1.2.3=2"]}, "--prior"),
        ({"prior": ["2.50.40=2"], "axes": ("qnn", "ort")}, "--prior: is for one axis"),
        ({"confidence": 0.9}, "--confidence: .*--repeat auto"),
        ({"candidates": ""}, "--versions: names no version"),
        ({"candidates": " , "}, "--versions: names no version"),
        ({"candidates": "2.47,,2.51"}, "--versions: unknown QNN version ''"),
        ({"candidates": "2.47,2.51", "candidates_file": Path("x")}, "--from-file: .*one of the"),
        ({"candidates": "2.47,2.51", "versions": {"qnn": "2.47,2.51"}}, "--qnn: .*one of the two"),
        ({"versions": {"compiler": ""}}, "--compiler: names no version"),
        ({"match": ""}, "--match"),
        ({"every": True}, "--every: is for two axes"),
        ({"newer": (True, True)}, "--newer: is for two axes"),
        ({"axes": ("ort", "qnn"), "every": True, "newer": (True, True)}, "--newer: nothing is"),
        ({"axes": ("ort", "qnn"), "good": "1.24.1,2.47.0"}, "--good: on two axes"),
        ({"axes": ("ort", "qnn"), "good": "1.24.1,2.47.0", "match": "code=1"}, "--good: on two"),
        ({"versions": {"ort": "1.24.1,1.31.1", "compiler": "2.47,2.51"}}, "only one axis"),
        ({"candidates_file": Path("nowhere")}, "cannot be read"),
        (
            {"axes": ("qnn", "device", "soc")},
            "one axis is searched, or two; .*soc or engine asks",
        ),
        ({"axes": ("engine",)}, "--axis: engine is an axis of cases of files; the marker"),
        ({"axes": ("device", "device")}, "one axis is searched"),
        ({"axes": ("qnn", "device"), "devices": ("a",)}, "--device: a is the only device"),
        ({"axes": ("soc",), "devices": ("a", "b-htp-1")}, "--device: qcs8550 is the only soc"),
        ({"axes": ("device",), "devices": ("a", "z")}, "not in the lab"),
        ({"axes": ("qnn", "device")}, "'d' has no target"),
        *(
            ({"axes": ("device",), "devices": ("a", "c"), **more}, says)
            for more, says in (
                ({"candidates": "2.47,2.48"}, "--versions: where only devices or engines"),
                (
                    {"candidates_file": Path("x")},
                    "--from-file: where only devices or engines",
                ),
                ({"good": "2.47"}, "--good: where only devices or engines"),
                ({"bad": "2.47"}, "--bad: where only devices or engines"),
                ({"prior": ["2.47=2"]}, "--prior: where only devices or engines"),
                ({"repeat": "auto"}, "--repeat: where only devices or engines"),
                ({"every": True}, "--every: is for two axes"),
                ({"newer": (True, True)}, "--newer: is for two axes"),
                ({"match": "measurement x_us > 2 * good"}, "--match: compares with a good version"),
                ({"versions": {"qnn": "2.47,2.48"}}, "--qnn: .*--axis qnn,device"),
            )
        ),
    ],
)
def test_wrong_input(lab: Lab, catalog: Catalog, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        begin(asked(**more), lab, catalog)


def test_the_case_may_lie_above(
    lab: Lab, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "below")
    (begun,) = begin(asked(lab=tmp_path / "devices.yaml"), lab, catalog)
    assert task_of(read_log(to_line(begun))).folder == tmp_path


def test_where_it_runs(lab: Lab) -> None:
    assert where_to_run(lab, "a.py::t[tiny]", [], None).devices == ("a", "b-htp-1")
    named = where_to_run(lab, "a.py::t[b-htp-1-gpu-2.51.0-x]", [], None)
    assert (named.devices, named.backend) == (("b-htp-1", "a"), "gpu")
    assert where_to_run(lab, "a.py::t[c-gpu-2.51.0-x]", ["a"], "cpu").backend == "cpu"
    pooled = [one.model_copy(update={"pool": "p"}) for one in lab.devices if one.name == "b-htp-1"]
    shared = lab.model_copy(update={"devices": (lab.devices[0], *pooled)})
    assert where_to_run(shared, "a.py::t[p-htp-2.51.0-x]", [], None).devices[0] == "b-htp-1"


def test_where_a_case_is_tried_that_does_not_fit_the_first_device(lab: Lab) -> None:
    first, *_ = lab.devices
    change = ({"name": "d", "soc": "SM8650"}, {"name": "e", "soc": "SM8650"}, {"name": "f"})
    more = [first.model_copy(update=one) for one in change]
    more.append(first.model_copy(update={"name": "g", "soc": "SM8750", "target": None}))
    mixed = lab.model_copy(update={"devices": (*lab.devices, *more)})
    others = other_kinds(mixed, asked(case="a.py::t[tiny]"))
    assert ["d", "e"] in others
    assert not {"a", "f", "g"} & {name for kind in others for name in kind}
    assert other_kinds(mixed, asked(case="a.py::t[a-htp-2.51.0-tiny]")) == []
    assert other_kinds(mixed, asked(devices=["a"])) == []
    assert other_kinds(mixed, asked(axes=("soc",))) == []


def test_a_version_that_is_a_path_is_told_to_pytest_as_that(
    lab: Lab, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolved(spec: str, target: str, *, field: str | None = None) -> list[str]:
        return {"/new/lib": ["lib:1.33.0"], "/repo": ["a", "b"]}.get(spec, [spec])

    monkeypatch.setattr(catalog.ort, "resolve", resolved)
    (tmp_path / "builds").write_text("1.31.1\n/new/lib\n")
    more = {"axes": ("ort",), "candidates_file": tmp_path / "builds"}
    (begun,) = begin(asked(**more), lab, catalog)
    assert isinstance(begun.spec, AxisSpec)
    assert begun.spec.candidates == ("1.31.1", "lib:1.33.0")
    arguments = task_of(read_log(to_line(begun))).arguments(("lib:1.33.0",), tmp_path, ["a"])
    assert {"--ort=/new/lib", "--qnn=2.51.0"} <= set(arguments)
    with pytest.raises(ConfigError, match="holds 2 versions"):
        begin(asked(axes=("ort",), candidates="/repo"), lab, catalog)
