"""Which libraries commands of this computer use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.device.lab.inventory import SIMULATED_LAB
from harness.ground.errors import ConfigError
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.pypi import all_versions
from harness.tools.cli.lab_options import DEFAULT_LAB, HOST_TARGET, host_runtime, lab_or_simulated


class CatalogWithoutDownloads(Catalog):
    """Tells what would be had instead of having it."""

    def runtime(self, *asked: Any, **more: Any) -> Any:
        assert not more
        return asked


@pytest.mark.parametrize(
    ("asked", "had"),
    [
        (None, all_versions()[-1]),
        ("latest", all_versions()[-1]),
        ("2.48.40", "2.48.40"),
        ("2.47.0,2.48.40", "2.48.40"),
        ("<=2.48.40", "2.48.40"),
    ],
)
def test_the_newest_of_what_is_asked_for_is_taken(
    tmp_path: Path, asked: str | None, had: str
) -> None:
    found: Any = host_runtime(CatalogWithoutDownloads(tmp_path), asked)
    assert found == (had, HOST_TARGET)


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
