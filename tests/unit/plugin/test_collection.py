"""Digests of the files that cases are made of, and expressions of marks that want devices."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.models.artefact_sources import ModelOptions, WholeFile
from harness.models.context_file import ContextFile
from harness.models.contexts import SourceList
from harness.models.onnx_model import OnnxModel
from harness.plugin import collection
from harness.plugin.collection import selects_devices

FILES = ("model.bin", "in/a.raw", "in/deeper/a.raw", "out/y.raw", "one.npy", "w.pte", "w-in/x.raw")


def items_of(machine: Path, onnx: str = "0" * 64) -> list[Any]:
    """Stand-ins of pytest's items, of cases that take all kinds of files."""
    (machine / "test_it.py").write_text("")
    arguments = ModelOptions(machine / "w-in", machine / "gone")
    parameters = (
        {"context": ContextFile("model.bin", inputs="in", expected="out")},
        {"contexts": SourceList("x", [ContextFile("model.bin", inputs=["one.npy"])])},
        {"workload": WholeFile.of(machine / "w.pte", (), arguments, [machine / "w.pte"])},
        {"model": OnnxModel("m", path=machine / "m.onnx", digest=onnx)},
        {"number": 1},
    )
    return [stand_in_item(machine / "test_it.py", by_name) for by_name in parameters]


def stand_in_item(path: Path, parameters: dict[str, object], artefact: object = None) -> Any:
    return SimpleNamespace(
        path=path, callspec=SimpleNamespace(params=parameters), getparent=lambda kind: artefact
    )


def digests(machine: Path, onnx: str = "0" * 64) -> dict[str, str]:
    selection: Any = SimpleNamespace(options=SimpleNamespace(known_issues=None))
    return collection.test_code(items_of(machine, onnx), selection)


@pytest.fixture
def machines(tmp_path: Path) -> list[Path]:
    machines = [tmp_path / name for name in ("first", "second")]
    for machine in machines:
        for name in FILES:
            (machine / name).parent.mkdir(parents=True, exist_ok=True)
            (machine / name).write_text(name)
    return machines


def test_the_same_files_elsewhere_have_the_same_digests(machines: list[Path]) -> None:
    first, second = map(digests, machines)
    assert first == second
    assert set(first) == {
        *("test_it.py", "model.bin", "in", "out", "one.npy", "w.pte", "w-in", "m.onnx")
    }


def renamed(file: Path) -> None:
    file.rename(file.with_name("other" + file.suffix))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [lambda file: file.write_text("other"), Path.unlink, renamed])
def test_each_file_that_a_case_reads_is_told_where_it_differs(
    machines: list[Path], name: str, change: Callable[[Path], object]
) -> None:
    first = digests(machines[0])
    change(machines[1] / name)
    second = digests(machines[1])
    unlike = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    assert unlike == {name.partition("/")[0]}


def test_another_model_to_compile_is_told(machines: list[Path]) -> None:
    first, second = digests(machines[0]), digests(machines[1], "1" * 64)
    assert {name for name in first if first[name] != second[name]} == {"m.onnx"}


def test_files_of_the_cache_are_not_called_by_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(tmp_path / "cache"))
    (test := tmp_path / "test_it.py").write_text("")
    (tmp_path / "cache").mkdir()
    selection: Any = SimpleNamespace(options=SimpleNamespace(known_issues=None))
    codes = []
    for number in range(2):
        (inputs := tmp_path / f"cache/{number}.raw").write_text(str(number))
        model = OnnxModel("m", path=tmp_path / "m.onnx", digest="0" * 64, input_files=(inputs,))
        codes.append(collection.test_code([stand_in_item(test, {"model": model})], selection))
    assert {name for name in codes[0] if codes[0][name] != codes[1][name]} == {
        "inputs and expected outputs of models"
    }
    assert codes[0].keys() == codes[1].keys()


@pytest.mark.parametrize("name", FILES)
def test_a_case_has_another_digest_exactly_if_a_file_of_its_own_holds_something_else(
    machines: list[Path], name: str
) -> None:
    before, same = (list(map(collection.files_sha256, items_of(machine))) for machine in machines)
    assert before == same
    (machines[1] / name).write_text("other")
    taken_by = {"one.npy": {1}, "model.bin": {0, 1}, "w.pte": {2}, "w-in/x.raw": {2}}
    after = list(map(collection.files_sha256, items_of(machines[1])))
    unlike = {i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
    assert unlike == taken_by.get(name, {0})


@pytest.mark.parametrize("workload", [(), [SourceList("net.onnx", ())]])
def test_a_file_that_nothing_was_taken_of_has_its_own_digest(
    tmp_path: Path, workload: object
) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(b"no model")
    item = stand_in_item(file, {"workload": workload}, artefact=file)
    assert collection.files_sha256(item) == sha256(b"no model").hexdigest()
    assert collection.files_sha256(stand_in_item(file, {"number": 1})) is None


@pytest.mark.parametrize(
    ("expression", "is_wanted", "alone"),
    [
        ("device", True, True),
        ("not (slow or not device)", True, True),
        # the other tests want a worker for each processor
        ("device or smoke", True, False),
        # a lab is none of these tests' business
        ("", False, False),
        ("not slow", False, False),
        ("not device", False, False),
        ("not (device or slow)", False, False),
        ("not device_of_mine", False, False),
        ("device and not device", False, False),
        ("device or not device", False, False),
        # pytest refuses these
        ("device and", False, False),
    ],
)
def test_which_devices_an_expression_wants(expression: str, is_wanted: bool, alone: bool) -> None:
    assert selects_devices(expression) is is_wanted
    assert selects_devices(expression, alone=True) is alone


def test_many_other_marks_take_no_time() -> None:
    others = " or ".join(f"mark_{number}" for number in range(40))
    assert selects_devices(f"{others} or device")
    assert selects_devices(f"device and ({others})", alone=True)
    assert not selects_devices(f"not device and ({others})")
