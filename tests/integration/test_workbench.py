"""What a run leaves on a device, and that it makes room there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.adb.device import AdbDevice, Completed
from harness.cache import cache_root
from harness.contexts.models import ModelSpec
from harness.lab.inventory import load_lab
from harness.runtimes import store_scripts
from harness.runtimes.store_scripts import MARK
from harness.workbench import Need, Placement, Workbench

MODELS = (ModelSpec("tiny"),)


def open_workbench(lab: Path) -> Workbench:
    return Workbench(load_lab(lab), cache=cache_root(), notify=lambda text: None)


def prepared(workbench: Workbench, version: str) -> Placement:
    placement = Placement("sim-test", "htp", version, "2.51.0")
    assert workbench.prepare([Need(placement, MODELS)]) == {}
    return placement


def stored_bytes(workdir: Path) -> int:
    return sum(path.stat().st_size for path in workdir.glob("store/*") if path.is_file())


def test_a_run_makes_room_for_itself_and_leaves_no_mark(simulated_lab: Path) -> None:
    limit_mb = 200
    simulated_lab.write_text(simulated_lab.read_text() + f"    store_limit_mb: {limit_mb}\n")
    for version in ("2.51.0", "2.47.0", "2.51.0"):
        workbench = open_workbench(simulated_lab)
        try:
            runtime, _ = workbench.deploy_runtime(prepared(workbench, version))
            workdir = Path(workbench.device("sim-test").workdir)
            assert Path(runtime.library("libQnnHtp.so")).exists()
            assert 100e6 < stored_bytes(workdir) < limit_mb * 1e6
            assert len(list(workdir.glob("inuse/*"))) == 1
        finally:
            workbench.close()
        assert list(workdir.glob("inuse/*")) == []


def test_all_that_a_placement_needs_takes_one_look(
    simulated_lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_workbench(simulated_lab)
    prepared(first, "2.51.0")
    first.close()
    scripts = []
    shell = AdbDevice.shell

    def counting(self: AdbDevice, script: str, **options: object) -> Completed:
        scripts.append(script)
        return shell(self, script, **options)  # type: ignore[arg-type]

    workbench = open_workbench(simulated_lab)
    try:
        workbench.device("sim-test")
        monkeypatch.setattr(AdbDevice, "shell", counting)
        placement = prepared(workbench, "2.51.0")
        workbench.deploy_contexts(placement, MODELS)
        workbench.deploy_runtime(placement)
        # what the device itself is asked about besides is no matter of the store
        assert [store_scripts.LOOK_SCRIPT in one for one in scripts if MARK in one] == [True]
    finally:
        workbench.close()


def test_a_device_that_is_attached_anew_is_marked_once(simulated_lab: Path) -> None:
    workbench = open_workbench(simulated_lab)
    try:
        prepared(workbench, "2.51.0")
        workdir = Path(workbench.device("sim-test").workdir)
        workbench._forget("sim-test")
        prepared(workbench, "2.51.0")
        assert len(list(workdir.glob("inuse/*"))) == 1
    finally:
        workbench.close()
