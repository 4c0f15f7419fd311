"""The libraries that commands of this computer use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from harness.cli.bisect import bisect
from harness.cli.contexts_diverge import diverge_command
from harness.cli.lab_options import DEFAULT_LAB, HOST_TARGET, host_runtime, lab_or_simulated
from harness.cli.run import run
from harness.core.errors import ConfigError
from harness.lab.inventory import SIMULATED_LAB
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import all_versions


class CatalogWithoutDownloads(Catalog):
    """Tells what would be had instead of having it."""

    def runtime(self, *requests: Any, **more: Any) -> Any:
        assert not more
        return requests


@pytest.mark.parametrize("named", [(), ("--lab", "devices.yaml")])
def test_a_bisection_without_a_lab_is_on_a_simulated_device(
    named: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`history` prints its lines with the lab of the run, which may be the simulated one."""
    monkeypatch.chdir(tmp_path)
    words = ["--case", "x", "--axis", "qnn", "--good", "2.51.0", "--bad", "2.47.0", *named]
    completed = CliRunner().invoke(bisect, words)
    assert "no devices.yaml here: running on the simulated device sim-v73" in completed.output
    assert "no such file" not in str(completed.exception)


def test_a_case_that_no_option_names_is_told_how_it_is_named() -> None:
    completed = CliRunner().invoke(bisect, ["--axis", "qnn", "test_a.py::test_it[a b]"])
    assert completed.exit_code == 2
    assert "Error: name the case by --case 'test_a.py::test_it[a b]'\n" in completed.output


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (None, all_versions()[-1]),
        ("latest", all_versions()[-1]),
        ("2.48", "2.48.40"),
        ("<2.48", "2.47.0"),
    ],
)
def test_the_version_that_is_asked_for_is_taken_or_else_the_newest(
    tmp_path: Path, spec: str | None, version: str
) -> None:
    runtime: Any = host_runtime(CatalogWithoutDownloads(tmp_path), spec)
    assert runtime == (version, HOST_TARGET)


@pytest.mark.parametrize("spec", ["2.47.0,2.48.40", "<=2.48.40", "all"])
def test_none_of_several_versions_is_chosen(tmp_path: Path, spec: str) -> None:
    with pytest.raises(ConfigError, match=f"^--qnn: '{spec}' is several versions"):
        host_runtime(CatalogWithoutDownloads(tmp_path), spec)


def test_a_version_that_there_is_not_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--qnn: .*1\.0"):
        host_runtime(CatalogWithoutDownloads(tmp_path), "1.0")


def test_without_a_lab_the_simulated_devices_are_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = Path("other.yaml")
    assert lab_or_simulated(DEFAULT_LAB, ["sim-v73"]) == SIMULATED_LAB
    assert lab_or_simulated(DEFAULT_LAB, ["sim-v73", "phone"]) == DEFAULT_LAB
    assert lab_or_simulated(other, ["sim-v73"]) == other
    with pytest.raises(ConfigError, match="simulates no 'sim-v70'"):
        lab_or_simulated(DEFAULT_LAB, ["sim-v70"])
    DEFAULT_LAB.write_text("schema: 1")
    assert lab_or_simulated(DEFAULT_LAB, ["sim-v73"]) == DEFAULT_LAB


LAB = "schema: 1\ndevices:\n  - {name: sim-x, serial: a}\n  - {name: phone, serial: b}\n"


@pytest.mark.parametrize(
    ("lab", "incomplete", "completed"),
    [
        (None, "sim-v75", ["sim-v75"]),
        (LAB, "", ["sim-x", "phone"]),
        (LAB, "sim-x,p", ["sim-x,phone"]),
        (LAB, "sim-v", []),
        ("schema: 1\ndevices: [", "", []),
    ],
)
@pytest.mark.parametrize("command", [run, bisect, diverge_command])
def test_tab_writes_names_of_devices(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: click.Command,
    lab: str | None,
    incomplete: str,
    completed: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--device"]
    if lab is not None:
        Path("my.yaml").write_text(lab)
        words = ["--lab", "my.yaml", "--device"]
    completions = ShellComplete(command, {}, "qnn-harness", "_X").get_completions(words, incomplete)
    assert [item.value for item in completions] == completed
