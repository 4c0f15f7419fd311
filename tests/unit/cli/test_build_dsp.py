"""`simulator build-dsp` says which emulator is used, and what is missing for the rest."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.main import commands
from harness.dsp.emulator import COMPILER_VARIABLE, HMX, VARIABLE, VECTOR_FLOAT, built_qemu
from tests.snapshots import Snapshot
from tests.unit.dsp.test_qemu import mock_qemu


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that is there already, and no compiler for the loader."""
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(tmp_path))
    monkeypatch.setenv(COMPILER_VARIABLE, "/none/such")
    monkeypatch.delenv(VARIABLE, raising=False)
    return mock_qemu(built_qemu(tmp_path / "boards"), "integer", VECTOR_FLOAT, HMX)


def test_one_that_is_there_is_not_built_again(built: Path, snapshot: Snapshot) -> None:
    snapshot.hide(built.parent.name, "DIGEST")
    completed = CliRunner().invoke(commands, ["simulator", "build-dsp"])
    assert completed.exit_code == 0
    assert completed.output == snapshot


def test_that_the_users_own_is_used_instead_is_said(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    snapshot.hide(built.parent.name, "DIGEST")
    program = mock_qemu(tmp_path / "own", "integer", version="qemu-hexagon version 11.1.3")
    monkeypatch.setenv(VARIABLE, str(program))
    completed = CliRunner().invoke(commands, ["simulator", "build-dsp"])
    assert completed.exit_code == 0
    assert completed.output == snapshot
