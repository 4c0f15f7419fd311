"""Engines of plug-ins beside the built-in ones."""

from __future__ import annotations

from pathlib import Path

import pluggy
import pytest

from harness.core import hooks
from harness.core.engines import ENGINES, find_engine
from harness.core.errors import ConfigError
from tests.unit.core.test_hooks import forget_module, installed

__all__ = ["forget_module"]

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
    hooks.use(pluggy.PluginManager("pytest"))


@pytest.fixture(autouse=True)
def restore_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_stack", [])


def test_a_plug_in_adds_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(ENGINES) == ["qnn", "ort", "executorch", "litert"]
    use_module(tmp_path, monkeypatch)
    assert list(ENGINES) == ["qnn", "ort", "executorch", "litert", "acme"]
    assert (ENGINES["acme"].test, ENGINES["acme"].suite) == ("test_acme", "run_acme")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "ort"}, "plug-in acme: the engine 'ort' exists"),
        ({"name": "a::b"}, "plug-in acme: an engine needs a title and a name like ort2, .* a::b"),
        ({"result": "[5]"}, "plug-in acme: qnn_engines returned 5, which is no Engine"),
        ({"result": "1 / 0"}, "plug-in acme: qnn_engines: ZeroDivisionError: division by zero"),
    ],
)
def test_a_mistake_of_a_plug_in_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, str], message: str
) -> None:
    use_module(tmp_path, monkeypatch, **values)
    with pytest.raises(ConfigError, match=message):
        list(ENGINES)


def test_an_unknown_engine_is_answered_by_all_known() -> None:
    with pytest.raises(ConfigError, match=r"no engine 'acme'.*qnn, ort, executorch, litert"):
        find_engine("acme")
