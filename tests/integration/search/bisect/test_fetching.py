"""What is likely to come next is really fetched meanwhile, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.ground.facts.versions import QNN_WHEELS
from harness.ground.files.cache import cache_root
from harness.libraries.runtimes.catalog import Catalog
from harness.libraries.runtimes.ort import ort_request
from harness.search.bisect.case_run import Task
from harness.search.bisect.versions import Supply

TARGET = "linux-x64"
ORT, QNN = "1.31.1", "2.48.40"


def task(folder: Path) -> Task:
    (folder / "devices.yaml").write_text(
        "schema: 1\ndevices:\n  - {name: a, simulated: true, soc: QCS8550, target: linux-x64}\n"
    )
    return Task.model_validate(
        {
            "case": "test_a.py::test_b",
            "axes": ("ort", "qnn"),
            "devices": ("a",),
            "target": TARGET,
            "backend": "htp",
            "lab": folder / "devices.yaml",
            "folder": folder,
        }
    )


@pytest.mark.slow
def test_an_ort_comes_with_the_runtime_of_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, real = tmp_path / "index", Catalog(cache_root())
    index.mkdir()
    real.ort.fetch(ORT, TARGET)
    real.runtime(QNN, TARGET)
    of_qnn = f"onnxruntime_qnn-{QNN_WHEELS[QNN]}-*_x86_64.whl"
    (wheel,) = (cache_root() / "wheels").glob(of_qnn)
    names = [ort_request(ORT, TARGET).file_name, wheel.name]
    for name in names:
        (index / name).symlink_to(cache_root() / "wheels" / name)
    cache = tmp_path / "cache"
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(cache))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    catalog, at = Catalog(cache), (ORT, QNN)
    supply = Supply(catalog, task(tmp_path))
    dear = supply.cost(at)
    try:
        began = time.monotonic()
        supply.want((at,))
        supply.want((("1.27.0", "2.51.0"),))  # one at a time
        assert time.monotonic() - began < 60
        while not (catalog.ort.is_cached(ORT, TARGET) and catalog.is_cached(QNN, TARGET)):
            assert time.monotonic() - began < 120
            time.sleep(0.1)
    finally:
        supply.close()
    assert {path.name for path in (cache / "wheels").glob("*.whl")} == set(names)
    supply.ran([])
    assert supply.cost(at) < dear / 5


def test_what_cannot_be_fetched_harms_nobody_and_ends_with_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/nothing")
    supply = Supply(Catalog(tmp_path / "cache"), task(tmp_path))
    began = time.monotonic()
    supply.want(((ORT, QNN),))
    assert time.monotonic() - began < 60
    supply.close()
    supply.close()
