"""An ORT that reports the places of nodes is known by its version."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.bench.ort_on_device import OrtOnDevice
from harness.runtimes.runtime import DeployedRuntime, Runtime


@pytest.mark.parametrize(
    ("version", "reports"),
    [
        ("1.23.9", False),
        ("1.24", True),
        ("1.100.1", True),
        ("2.0", True),
        ("odd", False),
        (None, False),
    ],
)
def test_from_1_24_on(version: str | None, reports: bool) -> None:
    runtime = Runtime("2.51.0", "linux-x64", Path(), (), ort_version=version)
    deployed = cast("DeployedRuntime", SimpleNamespace(runtime=runtime))
    assert OrtOnDevice(deployed, "l", None, "b", None).reports_placement is reports
