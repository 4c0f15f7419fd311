"""A kind of source of libraries from a package outside of the tree, in a run and in commands."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.cache import cache_root
from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.unit.core.test_hooks import installed

CASE = ("-k", "context_count and tiny and resident-3")


def example() -> str:
    """Return the module in the section of docs/extend.md."""
    (module,) = re.findall(
        r'```python\n("""acme_plugin.py: releases .*?)```',
        (ROOT / "docs/extend.md").read_text(),
        re.DOTALL,
    )
    assert len(module.splitlines()) <= 60
    return str(module)


@pytest.fixture
def runs(tmp_path: Path, runtime_for: RuntimeFor) -> Iterator[DeviceRuns]:
    """A lab that names a share with one release, and the plug-in that reads it."""
    unpacked = cache_root() / "acme-releases"
    shutil.rmtree(unpacked, ignore_errors=True)
    (tmp_path / "lab").mkdir()
    (tmp_path / "packages").mkdir()
    (tmp_path / "share").mkdir()
    runs = DeviceRuns(tmp_path / "lab")
    installed(tmp_path / "packages", example())
    runs.environment["PYTHONPATH"] = f"{tmp_path / 'packages'}:{ROOT}"
    with tarfile.open(
        tmp_path / "share/qnn-2.50.40-linux-x64.tar.gz", "w:gz", compresslevel=1
    ) as tar:
        for file in runtime_for("2.50.40").files:
            tar.add(file.path, file.name)
    entry = "{name: acme, kind: acme-releases, share: ../share}"
    runs.file.write_text(f"{runs.file.read_text()}runtimes:\n  - {entry}\n")
    yield runs
    shutil.rmtree(unpacked, ignore_errors=True)


@pytest.mark.slow
def test_a_package_adds_a_kind_of_source(runs: DeviceRuns) -> None:
    completed = runs.qnn_harness("runtimes", "list", "--json", "--lab", runs.file)
    assert completed.returncode == 0, completed.stderr
    listed = json.loads(completed.stdout)["runtimes"]
    assert [row["cached"] for row in listed if row["name"] == "acme:2.50.40"] == [False]

    finished = runs.run("--qnn", "acme:latest", "--preflight", "strict", *CASE)
    assert finished.code == 0, finished.output
    (case,) = finished.cases
    assert "sim-v73-htp-acme:2.50.40" in case["case"]
    assert case["runtime"]["source"] == "acme"
    assert case["outcome"] == "passed"

    completed = runs.qnn_harness("runtimes", "verify", "--lab", runs.file)
    assert completed.returncode == 0, completed.stderr
