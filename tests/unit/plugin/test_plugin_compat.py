"""Our values do not move pytest's root folder, and no two cases share a name."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.config import _prepareconfig
from _pytest.config.argparsing import Parser

from harness.core.errors import ConfigError
from harness.plugin.options import WITH_VALUE, add_options
from harness.plugin.plugin_compat import refuse_cases_of_one_name
from tests.snapshots import Snapshot


def test_all_options_that_take_a_value_are_known() -> None:
    parser = Parser(_ispytest=True)
    add_options(parser)
    options = parser.getgroup("qnn-harness").options
    attributes = {option.names()[0]: option.attrs() for option in options}
    flags = {
        name
        for name, value in attributes.items()
        if value.get("nargs") == 0 or value.get("action") in ("store_true", "store_const")
    }
    assert set(attributes) - flags == WITH_VALUE
    assert "--qnn-dry-run" in flags


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a configuration, beside another one and above a third."""
    for name in ("project", "other", "project/below", "bare"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "devices.yaml").touch()
    for name in ("project", "other", "project/below"):
        (tmp_path / name / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "project/tests").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return tmp_path / "project"


@pytest.fixture
def rootdir(project: Path) -> Callable[..., Path]:
    def of(*words: str) -> Path:
        config = _prepareconfig([*words, "-p", "no:xdist"])
        config._ensure_unconfigure()
        return config.rootpath

    return of


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--lab", "../other/devices.yaml"),
        ("--qnn-lab", "below/devices.yaml"),
        ("--reports", "below"),
        ("--qnn", "../bare/devices.yaml"),
    ],
)
def test_a_path_moves_nothing_in_one_word_and_is_refused_in_two(
    rootdir: Callable[..., Path], project: Path, option: str, value: str
) -> None:
    assert rootdir(f"{option}={value}") == project
    with pytest.raises(pytest.UsageError, match=f"write {option}={value}"):
        rootdir(option, value)


def test_two_words_that_move_nothing_are_fine(rootdir: Callable[..., Path], project: Path) -> None:
    assert rootdir("--lab", "devices.yaml") == project
    assert rootdir("tests", "--lab", "below/devices.yaml") == project
    assert rootdir("--qnn", "2.51.0", "--device", "sim-v73") == project
    assert rootdir("--rootdir=.", "-c", "pytest.ini", "--lab", "../other/devices.yaml") == project


def test_options_of_the_environment_count(
    rootdir: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--lab ../other/devices.yaml")
    with pytest.raises(pytest.UsageError):
        rootdir()


def case(path: str, name: str) -> pytest.Item:
    return SimpleNamespace(path=Path(path), nodeid=name)  # type: ignore[return-value]


def test_cases_of_one_name_are_refused(snapshot: Snapshot) -> None:
    both = [case("/x/a/test_y.py", "test_y.py::t"), case("/x/b/test_y.py", "test_y.py::t")]
    for items in (both, [both[0], both[0], case("/x/a/test_y.py", "test_y.py::t")]):
        with snapshot.raises(ConfigError):
            refuse_cases_of_one_name(items)
    refuse_cases_of_one_name([both[0], case("/x/b/test_y.py", "b/test_y.py::t")])
