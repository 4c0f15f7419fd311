"""What is likely to come next is fetched meanwhile; what cannot be fetched harms nobody."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.bisect.candidates import Costs, FetchAhead, is_here
from harness.bisect.task import Task
from harness.runtimes.catalog import Catalog


def test_fetching_ahead_returns_at_once_and_ends_with_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/nothing")
    (tmp_path / "devices.yaml").write_text(
        "schema: 1\ndevices:\n  - {name: a, simulated: true, soc: QCS8550, target: linux-x64}\n"
    )
    catalog = Catalog(tmp_path / "cache")
    task = Task.model_validate(
        {
            "case": "test_a.py::test_b",
            "axes": ("qnn",),
            "held": {"compiler": "2.47.0"},
            "devices": ("a",),
            "target": "linux-x64",
            "backend": "htp",
            "lab": tmp_path / "devices.yaml",
            "folder": tmp_path,
        }
    )
    assert not is_here(catalog, "qnn", "2.47.0", "linux-x64")
    assert is_here(catalog, "qnn", "9.9.9", "linux-x64")  # nobody knows: not our business
    assert Costs(catalog, task)(("2.47.0",)) > 40
    ahead = FetchAhead(catalog, task)
    began = time.monotonic()
    ahead.want((("2.47.0",), ("2.51.0",)))
    ahead.want((("2.48.40",),))
    assert time.monotonic() - began < 2
    ahead.stop()
    ahead.stop()
