"""For which devices `-n auto` starts workers: those that some test of the files named fits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.device.lab.inventory import DeviceConfig
from harness.run.pytest_plugin.asked import Selection
from harness.run.pytest_plugin.workers import fitting, markers_in, number_of_workers

DEVICES = [
    DeviceConfig(name="a", serial="A", soc="SM8650", tags=("fast",)),
    DeviceConfig(name="b", serial="B", soc="SM8750"),
    DeviceConfig(name="c", serial="C", soc="QCS610"),  # it has no HTP
]
LAB = """schema: 1
devices:
  - {name: a, serial: A, soc: SM8650}
  - {name: b, serial: B, soc: SM8750}
  - {name: c, serial: C, soc: SM8750, enabled: false}
"""
OLD = b"import pytest\n@pytest.mark.device(htp_arch=75)\ndef test_a(bench): ...\n"
NEW = b"import pytest\npytestmark = pytest.mark.device(backend='htp', htp_arch=(79, 81))\n"


@pytest.mark.parametrize(
    ("markers", "backends", "fit"),
    [
        ([], [], "abc"),
        ([{}], [], "ab"),
        ([{"backend": ("htp", "cpu")}], [], "abc"),
        ([{"backend": ("htp", "cpu")}], ["htp"], "ab"),
        ([{"backend": "gpu"}], ["htp"], ""),
        ([{"htp_arch": 75}], [], "a"),
        ([{"htp_arch": 75}, {"soc": "SM8750"}], [], "ab"),
        ([{"tags": "fast", "soc": "SM8750"}], [], ""),
        ([{"htp_arch": 1}], [], "abc"),
        ([{"nonsense": 1}], [], "abc"),
    ],
)
def test_devices_that_some_marker_fits(markers: list[Any], backends: list[str], fit: str) -> None:
    assert "".join(one.name for one in fitting(DEVICES, markers, backends)) == fit


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (OLD, [{"htp_arch": 75}]),
        (NEW, [{"backend": "htp", "htp_arch": (79, 81)}]),
        (b"@pytest.mark.device\ndef test(bench): ...", [{}]),
        (b"@mark.device()\ndef test(bench): ...", [{}]),
        (b"bench.device(htp_arch=75)\nmark.smoke(1)", []),
        (b"", []),
    ],
)
def test_markers_are_read_and_not_imported(source: bytes, found: list[Any]) -> None:
    assert markers_in(source) == found


@pytest.mark.parametrize("source", [b"@mark.device(soc=MINE)\ndef t(): ...", b"@mark.device(**x)"])
def test_what_cannot_be_read_off_is_not_guessed(source: bytes) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        markers_in(source)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (["test_old.py"], 1),
        (["test_old.py::test_a", "more"], 2),
        (["."], 2),
        (["old"], 1),
        (["test_old.py", "test_named.py"], 2),
        (["model.pte"], 2),
        (["harness.suites.test_backends"], 2),
        (["nothing.of.this"], 2),
    ],
)
def test_a_worker_for_each_device_of_the_files_named(
    tmp_path: Path, words: list[str], number: int, pytestconfig: pytest.Config
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/test_new.py").write_bytes(NEW)
    (tmp_path / "test_old.py").write_bytes(OLD)
    for place in ("old/.venv/lib", "old/env/lib"):  # where pytest looks for no test
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "test_foreign.py").write_bytes(NEW)
    (tmp_path / "old/env/pyvenv.cfg").touch()
    (tmp_path / "old/test_old.py").write_bytes(OLD)
    (tmp_path / "test_named.py").write_bytes(b"@mark.device(soc=MINE)\ndef test(bench): ...")
    (tmp_path / "devices.yaml").write_text(LAB)
    options: Any = SimpleNamespace(lab=tmp_path / "devices.yaml", devices=[], backends=[])
    said = {"python_files": ["test_*.py"]}

    def ignored(collection_path: Path, config: object) -> bool | None:
        found: bool | None = pytestconfig.hook.pytest_ignore_collect(
            collection_path=collection_path, config=pytestconfig
        )
        return found

    config: Any = SimpleNamespace(
        args=words,
        invocation_params=SimpleNamespace(dir=tmp_path),
        getini=said.__getitem__,
        hook=SimpleNamespace(pytest_ignore_collect=ignored),
    )
    assert number_of_workers(config, Selection(options)) == number


def test_without_a_lab_there_is_no_worker(tmp_path: Path) -> None:
    options: Any = SimpleNamespace(lab=tmp_path / "devices.yaml", devices=[], backends=[])
    assert number_of_workers(SimpleNamespace(args=[]), Selection(options)) == 0  # type: ignore[arg-type]
