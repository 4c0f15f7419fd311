"""The files that a run leaves on a device, and those that it removes to make room."""

import contextlib
from pathlib import Path
from typing import get_args

import pytest

from harness.bench.case_placement import Placement
from harness.bench.run_preparation import Workbench
from harness.core.state_folders import cache_root, simulated_root
from harness.deploy.store_client import ScriptName, script
from harness.lab.inventory import load_lab
from harness.lab.lab_device import AttachedDevice
from harness.models.builtin_models import Model
from harness.transport.adb_device import AdbDevice
from harness.transport.shell import Completed
from tests.logged import Logged

MODELS = (Model("tiny"),)


def open_workbench(lab: Path) -> Workbench:
    return Workbench(load_lab(lab), cache=cache_root())


def device_of(workbench: Workbench) -> AttachedDevice:
    return workbench.provisioned(workbench.lab.device("sim-test")).device


def prepared(workbench: Workbench, version: str) -> Placement:
    placement = Placement(device="sim-test", backend="htp", qnn=version, compiler="2.51.0")
    workbench.needs = {placement: MODELS}
    workbench.ready(placement)
    return placement


def stored_bytes(workdir: Path) -> int:
    return sum(path.stat().st_size for path in workdir.glob("store/*") if path.is_file())


@pytest.mark.slow
def test_a_run_makes_room_for_itself_and_leaves_no_mark(
    simulated_lab: Path, logged: Logged
) -> None:
    limit_mb = 200
    described = simulated_lab.read_text()
    simulated_lab.write_text(f"{described}    store_limit_mb: {limit_mb}\n")
    for version in ("2.51.0", "2.47.0", "2.51.0"):
        with contextlib.closing(open_workbench(simulated_lab)) as workbench:
            runtime = workbench.ready(prepared(workbench, version)).runtime
            workdir = Path(device_of(workbench).workdir)
            assert Path(runtime.library("libQnnHtp.so")).exists()
            assert 100e6 < stored_bytes(workdir) < limit_mb * 1e6
            assert len(list(workdir.glob("inuse/*"))) == 1
        storage = (
            simulated_root(cache_root()) / "sim-test" / workdir.relative_to(workdir.parents[3])
        )
        assert list(storage.glob("inuse/*")) == []
        assert 100e6 < stored_bytes(storage) < limit_mb * 1e6
    assert logged.warnings == []
    simulated_lab.write_text(f"{described}    store_limit_mb: 50\n")
    with contextlib.closing(open_workbench(simulated_lab)) as workbench:
        prepared(workbench, "2.47.0")
        assert stored_bytes(Path(device_of(workbench).workdir)) > 50e6
    (warning,) = logged.warnings
    assert "more than its store_limit_mb (50)" in warning


def test_all_that_a_placement_needs_takes_one_look(
    simulated_lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(open_workbench(simulated_lab)) as first:
        prepared(first, "2.51.0")
    sent = []
    shell = AdbDevice.shell

    def counting(self: AdbDevice, script: str, **options: object) -> Completed:
        sent.append(script)
        return shell(self, script, **options)  # type: ignore[arg-type]

    with contextlib.closing(open_workbench(simulated_lab)) as workbench:
        device_of(workbench)
        monkeypatch.setattr(AdbDevice, "shell", counting)
        placement = prepared(workbench, "2.51.0")
        workbench.ready(placement).contexts(MODELS)
        # what the device itself is asked about besides is no matter of the store
        scripts = [name for text in sent for name in get_args(ScriptName) if script(name) in text]
        assert scripts == ["look", "install"]  # contents are there, the set is made of them


def test_a_device_that_is_attached_anew_is_marked_once(simulated_lab: Path) -> None:
    with contextlib.closing(open_workbench(simulated_lab)) as workbench:
        prepared(workbench, "2.51.0")
        workdir = Path(device_of(workbench).workdir)
        workbench.recover(workbench.lab.device("sim-test"), case_over=False, background=False)
        prepared(workbench, "2.51.0")
        assert len(list(workdir.glob("inuse/*"))) == 1
