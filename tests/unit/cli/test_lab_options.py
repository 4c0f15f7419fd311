"""The libraries that commands of this computer use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli.bisect import bisect
from harness.cli.lab_options import DEFAULT_LAB, HOST_TARGET, host_runtime, lab_or_simulated
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
