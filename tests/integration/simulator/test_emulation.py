"""A board is on where a tiny program was compiled for it and ran, not where tools merely lie."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness.doctor.examine import simulated_checks
from harness.dsp.emulator import VARIABLE
from harness.lab.inventory import load_lab
from harness.simulator.board import CROSS_COMPILER_VARIABLE, why_no_board

CROSS, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"
pytestmark = [pytest.mark.needs(QEMU), pytest.mark.needs(CROSS)]

LAB = """schema: 1
devices:
  - {name: sim, simulated: true, soc: QCS8550}
  - {name: board, simulated: true, soc: QCS8550, target: linux-arm64, enabled: auto}
"""


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def test_a_compiler_without_its_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = program(tmp_path, "cross", f'exec {CROSS} -nostdinc "$@"')
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(CROSS_COMPILER_VARIABLE, str(lacking))
    file = tmp_path / "devices.yaml"
    file.write_text(LAB)
    lab = load_lab(file)
    assert [device.name for device in lab.enabled_devices()] == ["sim"]
    why = lab.why_off(lab.devices[1])
    assert why is not None
    assert why.startswith(f"is off: {lacking} compiles nothing for arm64")
    assert "apt install libc6-dev-arm64-cross" in why
    assert "dlfcn.h" in why
    monkeypatch.delenv(CROSS_COMPILER_VARIABLE)
    assert [device.name for device in load_lab(file).enabled_devices()] == ["sim", "board"]


def test_a_board_with_a_dsp_is_off_where_only_the_dsp_lacks_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    file = tmp_path / "devices.yaml"
    file.write_text(LAB + LAB.splitlines()[-1].replace("board", "dsp").replace("}", ", dsp: true}"))
    lab = load_lab(file)
    assert [device.name for device in lab.enabled_devices()] == ["sim", "board"]
    why = lab.why_off(lab.devices[2])
    assert why == f"is off: {VARIABLE}: {tmp_path / 'none'} is no program"
    (check,) = simulated_checks(lab)
    assert (check.subject, check.name, check.status) == ("dsp", "simulated here", "not-applicable")


def test_an_emulator_that_does_not_run_it(tmp_path: Path) -> None:
    program(tmp_path / "bin", QEMU, "echo 'error: no such CPU' >&2; exit 1")
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    why = why_no_board(tmp_path / "cache", environment)
    assert why == f"{tmp_path}/bin/{QEMU} does not run arm64 programs: error: no such CPU"


def test_what_worked_is_tried_again_only_when_it_changes(tmp_path: Path) -> None:
    used = tmp_path / "used"
    counting = f'echo >>{used}; exec {shutil.which(CROSS)} "$@"'
    environment = os.environ | {
        CROSS_COMPILER_VARIABLE: str(program(tmp_path / "bin", "cross", counting))
    }

    def tries() -> int:
        assert why_no_board(tmp_path / "cache", environment) is None
        return len(used.read_text())

    assert (tries(), tries()) == (1, 1)
    program(tmp_path / "bin", "cross", f"{counting} ")
    assert (tries(), tries()) == (2, 2)
    folders = [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert [name.partition("-")[0] for name in folders] == ["board"]
