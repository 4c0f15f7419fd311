"""Plug-ins in other packages, found by their entry points, and their engines."""

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pluggy
import pytest

from harness.core import hooks
from harness.core.engine import ENGINES, find_engine
from harness.core.errors import ConfigError
from tests.snapshots import Snapshot

ENGINES_OF_A_PLUG_IN = """
import pytest

@pytest.hookimpl
def qnn_engines():
    return ["an engine"]
"""


def installed(folder: Path, module: str) -> Path:
    """Install a module with an entry point into a folder, and return the folder."""
    info = folder / "acme-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{hooks.GROUP}]\nacme = acme_plugin\n")
    (folder / "acme_plugin.py").write_text(module)
    return folder


@pytest.fixture(autouse=True)
def forget_module() -> Iterator[None]:
    yield
    sys.modules.pop("acme_plugin", None)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pluggy.PluginManager:
    monkeypatch.syspath_prepend(installed(tmp_path, ENGINES_OF_A_PLUG_IN))
    return pluggy.PluginManager("pytest")


def test_an_installed_module_implements_a_hook(plugin: pluggy.PluginManager) -> None:
    hooks.use(plugin)
    assert ["an engine"] in hooks.hooks().qnn_engines()
    hooks.leave(plugin)
    hooks.leave(plugin)  # as pytest does where an error ends it early
    assert ["an engine"] not in hooks.hooks().qnn_engines()


def test_a_plug_in_of_pytest_implements_a_hook_from_its_registration_on() -> None:
    manager, conftest = pytest.PytestPluginManager(), types.ModuleType("conftest")
    hooks.use(manager)
    assert "conftest.py" not in dict(hooks.results("qnn_engines"))
    exec(ENGINES_OF_A_PLUG_IN, conftest.__dict__)
    manager.register(conftest, "conftest.py")
    assert dict(hooks.results("qnn_engines"))["conftest.py"] == ["an engine"]
    hooks.leave(manager)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (ENGINES_OF_A_PLUG_IN.replace("engines()", "engine()"), "plug-in acme: "),
        (ENGINES_OF_A_PLUG_IN.replace("()", "(unknown)"), "plug-in acme: "),
        ("import missing_library", r"acme_plugin.*missing_library"),
    ],
)
def test_a_module_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, message: str
) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path, module))
    with pytest.raises(ConfigError, match=message):
        hooks.use(pluggy.PluginManager("pytest"))


def test_a_blocked_module_is_not_loaded(plugin: pluggy.PluginManager) -> None:
    plugin.set_blocked("acme")  # as `-p no:acme` does
    hooks.use(plugin)
    assert ["an engine"] not in hooks.hooks().qnn_engines()
    hooks.leave(plugin)


MODULE = """
import pytest
from harness.core.engine import Engine

class Acme(Engine):
    name = {name!r}
    title = "Acme"

@pytest.hookimpl
def qnn_engines():
    return {result}
"""


def use_module(folder: Path, monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    text = MODULE.format(**{"name": "acme", "result": "[Acme()]"} | values)
    monkeypatch.syspath_prepend(installed(folder, text))
    monkeypatch.setattr(hooks, "_stack", [])
    hooks.use(pluggy.PluginManager("pytest"))


def test_a_plug_in_adds_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(ENGINES) == ["qnn", "ort", "executorch", "litert"]
    use_module(tmp_path, monkeypatch)
    assert list(ENGINES) == ["qnn", "ort", "executorch", "litert", "acme"]
    assert (ENGINES["acme"].test, ENGINES["acme"].suite) == ("test_acme", "run_acme")


@pytest.mark.parametrize(
    ("field", "value"), [("name", "ort"), ("name", "a::b"), ("result", "[5]"), ("result", "1 / 0")]
)
def test_a_mistake_of_a_plug_in_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: str, snapshot: Snapshot
) -> None:
    use_module(tmp_path, monkeypatch, **{field: value})
    with snapshot.raises(ConfigError):
        list(ENGINES)


def test_an_unknown_engine_is_answered_by_all_known() -> None:
    with pytest.raises(ConfigError, match="qnn, ort, executorch, litert"):
        find_engine("acme")
