"""Reasons why this computer cannot simulate a DSP: the emulator first, then the compiler."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.dsp.emulator import (
    COMPILER_VARIABLE,
    VARIABLE,
    VECTOR_FLOAT,
    build_loader,
    dsp_programs,
    lacks_floats,
    loader_missing,
    why_no_dsp,
)
from tests.unit.dsp.test_qemu import mock_qemu


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path)}
    why = why_no_dsp(tmp_path, nothing) or ""
    assert why.startswith("there is no qemu-hexagon: `qnn-harness simulator build-dsp` builds one")
    emulator = mock_qemu(tmp_path / "emulator", "integer")
    with_emulator = nothing | {VARIABLE: str(emulator), COMPILER_VARIABLE: str(tmp_path / "none")}
    why = why_no_dsp(tmp_path, with_emulator) or ""
    assert why.startswith("no compiler for Hexagon: pip install 'qnn-harness[dsp]' has one")
    with pytest.raises(ConfigError, match="no compiler for Hexagon"):
        dsp_programs(tmp_path, with_emulator)


def test_nothing_is_built_to_find_out(tmp_path: Path) -> None:
    emulator = mock_qemu(tmp_path / "emulator", "integer")
    can = {"PATH": str(tmp_path), VARIABLE: str(emulator), COMPILER_VARIABLE: sys.executable}
    assert why_no_dsp(tmp_path / "cache", can) is None
    assert loader_missing(tmp_path / "cache", can) == (
        "its DSP's loader is not compiled yet: the first run does it, in some minutes"
    )
    assert not list((tmp_path / "cache").glob("loader*"))


def test_whether_it_has_floating_point_is_the_emulators_answer(tmp_path: Path) -> None:
    for name, can, lacks in (("a", (), True), ("b", (VECTOR_FLOAT,), False)):
        emulator = mock_qemu(tmp_path / name, "integer", *can)
        environment = {"PATH": str(tmp_path), VARIABLE: str(emulator)}
        assert lacks_floats(tmp_path / "cache", environment) is lacks


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
