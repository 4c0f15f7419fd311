"""The choice of a qemu-hexagon, its abilities, and reasons why no DSP can be simulated."""

import os
import sys
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.dsp import emulator
from harness.dsp.emulator import (
    COMPILER_VARIABLE,
    HMX,
    VARIABLE,
    VECTOR_FLOAT,
    build_loader,
    built_qemu,
    dsp_programs,
    find_qemu,
    lacks_floats,
    loader_missing,
    why_no_dsp,
)
from tests.snapshots import Snapshot

WORDS = {"integer": "1c41c000", VECTOR_FLOAT: "1fa2e13f", HMX: "a6e0c011"}


def mock_qemu(
    file: Path, *can: str, version: str = "qemu-hexagon version 10.0.13 (Debian)"
) -> Path:
    """Looks at the first word of a program, and says whether that is one it knows."""
    known = "|".join(f"*{WORDS[ability]}*" for ability in can) or "none"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'#!/bin/sh\necho "$1" >> "{file}.ran"\n'
        f'[ "$1" = --version ] && echo "{version}" && exit\n'
        f'case $(od -An -tx4 -j116 -N4 "$1") in {known}) exit 0;; esac\nexit 132\n'
    )
    file.chmod(0o700)
    return file


def path_with(folder: Path) -> dict[str, str]:
    return {"PATH": str(folder)}


@pytest.mark.parametrize("can", [(), (HMX,), (VECTOR_FLOAT, HMX)])
def test_what_the_systems_can(tmp_path: Path, can: tuple[str, ...]) -> None:
    path = mock_qemu(tmp_path / "bin" / "qemu-hexagon", "integer", *can)
    qemu = find_qemu(tmp_path / "cache", path_with(tmp_path / "bin"))
    assert qemu == emulator.Qemu(path, "10.0.13", frozenset(can))
    assert lacks_floats(tmp_path / "cache", path_with(tmp_path / "bin")) is (
        VECTOR_FLOAT not in can
    )


def test_what_was_tried_is_remembered_until_the_program_changes(tmp_path: Path) -> None:
    path = mock_qemu(tmp_path / "qemu", "integer")
    environment = {**os.environ, VARIABLE: str(path)}
    assert find_qemu(tmp_path, environment) == find_qemu(tmp_path, environment)
    assert (tmp_path / "qemu.ran").read_text().count("--version") == 1
    mock_qemu(path, "integer", HMX, VECTOR_FLOAT)
    assert find_qemu(tmp_path, environment).can == {HMX, VECTOR_FLOAT}


def test_the_users_own_comes_first_then_the_built_one(tmp_path: Path) -> None:
    cache, folder = tmp_path / "cache", tmp_path / "bin"
    users = mock_qemu(tmp_path / "own", "integer")
    mock_qemu(folder / "qemu-hexagon", "integer")
    mock_qemu(built_qemu(cache), "integer", HMX)
    assert find_qemu(cache, path_with(folder)).path == built_qemu(cache)
    assert find_qemu(cache, path_with(folder) | {VARIABLE: str(users)}).path == users
    built_qemu(cache).unlink()
    assert find_qemu(cache, path_with(folder)).path == folder / "qemu-hexagon"


def test_without_the_patch_the_newest_that_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "PATCH", tmp_path / "absent")
    assert not built_qemu(tmp_path).exists()
    for name, age in (("b", 3), ("c", 9), ("a", 5)):
        os.utime(mock_qemu(tmp_path / "qemu-hexagon" / name / "qemu-hexagon"), (age, age))
    assert built_qemu(tmp_path).parent.name == "c"


def test_one_that_does_not_do_is_named_with_how_to_get_one(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    with snapshot.raises(ConfigError):
        find_qemu(tmp_path, path_with(tmp_path))
    mock_qemu(tmp_path / "qemu-hexagon", version="qemu-hexagon version 7.2.22")
    other = mock_qemu(tmp_path / "other", version="other version 4")
    named = ({VARIABLE: str(path)} for path in (other, tmp_path / "none"))
    for variables in ({}, *named):  # one that is named is not replaced
        with snapshot.raises(ConfigError):
            find_qemu(tmp_path / "cache", path_with(tmp_path) | variables)


def test_the_patch_tells_what_was_built_with_it(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "x.c").write_text("one")
    before = emulator.patch_key(tmp_path)
    (tmp_path / "README.md").write_text("words")
    assert emulator.patch_key(tmp_path) == before
    (tmp_path / "target" / "x.c").write_text("two")
    assert emulator.patch_key(tmp_path) != before


def test_what_is_missing_is_named(tmp_path: Path, snapshot: Snapshot) -> None:
    nothing = {"PATH": str(tmp_path)}
    assert why_no_dsp(tmp_path, nothing) == snapshot
    qemu = mock_qemu(tmp_path / "emulator", "integer")
    with_emulator = nothing | {VARIABLE: str(qemu), COMPILER_VARIABLE: str(tmp_path / "none")}
    assert why_no_dsp(tmp_path, with_emulator) == snapshot
    with pytest.raises(ConfigError, match="compiler"):
        dsp_programs(tmp_path, with_emulator)


def test_nothing_is_built_to_find_out(tmp_path: Path) -> None:
    qemu = mock_qemu(tmp_path / "emulator", "integer")
    can = {"PATH": str(tmp_path), VARIABLE: str(qemu), COMPILER_VARIABLE: sys.executable}
    assert why_no_dsp(tmp_path / "cache", can) is None
    assert loader_missing(tmp_path / "cache", can)
    assert not list((tmp_path / "cache").glob("loader*"))


def test_the_loader_is_compiled_by_the_compiler_that_a_variable_names(tmp_path: Path) -> None:
    compiler = tmp_path / "mock-cc"
    script = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo made > "$2"
"""
    compiler.write_text(script)
    compiler.chmod(0o755)
    environment = {COMPILER_VARIABLE: str(compiler), "PATH": "/bin"}
    assert build_loader(tmp_path / "cache", environment).read_text() == "made\n"
