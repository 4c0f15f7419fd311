"""Kinds of sources from plug-ins, and what is wrong with some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.core.errors import ConfigError
from harness.lab.fields import RuntimeSource
from harness.lab.inventory import load_lab
from harness.runtimes.catalog import Catalog

LAB = """schema: 1
devices:
  - {name: a, serial: b}
runtimes:
  - {name: mine, kind: share, drive: Z}
"""


class Share(RuntimeSource):
    kind: Literal["share"]
    drive: str

    def open(self, folder: Path, cache_root: Path) -> object:
        return f"{self.drive}: of {folder}"


class SecondFolder(RuntimeSource):
    kind: Literal["folder"]


class Unnamed(RuntimeSource):
    pass


@pytest.mark.parametrize(
    ("kinds", "problem"),
    [
        ([7], "7 is no subclass of RuntimeSource"),
        ("ab", "'ab' is no subclass of RuntimeSource"),
        ([Path], "is no subclass of RuntimeSource"),
        ([Unnamed], 'Unnamed needs a field `kind: Literal["NAME"]`'),
        ([SecondFolder], "kind 'folder' is taken already"),
        (OSError("no share"), "qnn_runtime_sources: OSError: no share"),
    ],
)
def test_a_mistake_of_a_plug_in_is_an_error_that_names_it(
    kinds: Any, problem: str, add_plug_in: Callable[..., None], tmp_path: Path
) -> None:
    add_plug_in("qnn_runtime_sources", kinds)
    with pytest.raises(ConfigError) as caught:
        RuntimeSource.kinds()
    assert str(caught.value).startswith("plug-in acme: ")
    assert problem in str(caught.value)
    lab_file = tmp_path / "devices.yaml"
    lab_file.write_text(LAB)
    with pytest.raises(ConfigError, match="plug-in acme: "):
        load_lab(lab_file)


def test_a_kind_that_opens_no_source_is_an_error(
    add_plug_in: Callable[..., None], tmp_path: Path
) -> None:
    add_plug_in("qnn_runtime_sources", [Share])
    lab_file = tmp_path / "devices.yaml"
    lab_file.write_text(LAB)
    lab = load_lab(lab_file)
    assert isinstance(lab.runtimes[0], Share)
    with pytest.raises(ConfigError, match=r"runtimes.mine: Share.open returned .*no LibrarySource"):
        Catalog.of(lab, {}, tmp_path / "cache")


def test_a_lab_is_stored_with_the_fields_of_each_kind(
    add_plug_in: Callable[..., None], tmp_path: Path
) -> None:
    add_plug_in("qnn_runtime_sources", [Share])
    lab_file = tmp_path / "devices.yaml"
    lab_file.write_text(LAB)
    (entry,) = load_lab(lab_file).model_dump(mode="json")["runtimes"]
    assert entry == {"name": "mine", "kind": "share", "drive": "Z"}
