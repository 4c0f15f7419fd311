"""A kind of source of libraries from a package outside of the tree, in a run and in commands."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from harness.core.state_folders import cache_root
from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.extend_page import shown_module
from tests.unit.core.test_hooks import installed


@pytest.mark.slow
def test_a_package_adds_a_kind_of_source(
    lab: DeviceRuns, tmp_path: Path, runtime_for: RuntimeFor
) -> None:
    shutil.rmtree(cache_root() / "acme-releases", ignore_errors=True)
    for name in ("packages", "share"):
        (tmp_path / name).mkdir()
    installed(tmp_path / "packages", shown_module("releases of QNN"))
    lab.environment["PYTHONPATH"] = f"{tmp_path / 'packages'}:{ROOT}"
    release = tmp_path / "share/qnn-2.50.40-linux-x64.tar.gz"
    with tarfile.open(release, "w:gz", compresslevel=1) as tar:
        for file in runtime_for("2.50.40").files:
            tar.add(file.path, file.name)
    entry = "{name: acme, kind: acme-releases, share: share}"
    lab.file.write_text(f"{lab.file.read_text()}runtimes:\n  - {entry}\n")

    completed = lab.qnn_harness("runtimes", "list", "--json", "--lab", lab.file, code=0)
    listed = json.loads(completed.stdout)["runtimes"]
    assert [row["cached"] for row in listed if row["name"] == "acme:2.50.40"] == [False]

    chosen = ("-k", "context_count and tiny and resident-3")
    finished = lab.run("--qnn", "acme:latest", "-o", "qnn_preflight=strict", *chosen, code=0)
    (case,) = finished.cases
    assert "sim-v73-htp-acme:2.50.40" in case["case"]
    assert case["runtime"]["source"] == "acme"
    assert case["outcome"] == "passed"

    completed = lab.qnn_harness("runtimes", "verify", "--lab", lab.file, code=0)
    shutil.rmtree(cache_root() / "acme-releases")
