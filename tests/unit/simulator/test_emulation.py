"""Tools that simulating a device of another CPU needs, and the errors without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.probe import build
from harness.simulator.board import (
    CROSS_COMPILER_VARIABLE,
    CROSS_COMPILERS,
    LIBRARIES_VARIABLE,
    LOADER,
    ZIG_TARGET,
    build_shim,
    find_tools,
)


def host(folder: Path) -> dict[str, str]:
    """An environment in which everything is in one folder."""
    for name in ("qemu-aarch64-static", "my-cross", "my-cc", "zig"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    (folder / LOADER).touch()
    (folder / "libstdc++.so.6").touch()
    return {
        "PATH": str(folder),
        "CC": "my-cc -m64",
        CROSS_COMPILER_VARIABLE: "my-cross -O1",
        LIBRARIES_VARIABLE: str(folder),
    }


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["qemu-aarch64-static"], "qemu-aarch64 (apt install qemu-user)"),
        (
            [LOADER, "libstdc++.so.6", "my-cross"],
            "the arm64 C library (apt install libc6-dev-arm64-cross), "
            "aarch64-linux-gnu-gcc or zig (apt install gcc-aarch64-linux-gnu)",
        ),
        (["libstdc++.so.6"], "its C++ runtime (apt install libstdc++6-arm64-cross)"),
        (["my-cc"], "a C compiler (apt install gcc)"),
    ],
)
def test_what_is_missing_is_named_with_its_package(
    missing: list[str], message: str, tmp_path: Path
) -> None:
    environment = host(tmp_path)
    for name in missing:
        (tmp_path / name).unlink()
    with pytest.raises(ConfigError) as caught:
        find_tools(environment)
    assert str(caught.value) == f"this computer lacks {message}"


def test_tools_are_found_where_variables_say(tmp_path: Path) -> None:
    environment = host(tmp_path)
    tools = find_tools(environment)
    assert tools.qemu == tmp_path / "qemu-aarch64-static"
    assert tools.libraries == tmp_path
    assert tools.compiler == (str(tmp_path / "my-cc"), "-m64")
    assert tools.cross == (str(tmp_path / "my-cross"), "-O1")
    del environment[CROSS_COMPILER_VARIABLE]
    assert find_tools(environment).cross == (str(tmp_path / "zig"), "cc", "-target", ZIG_TARGET)


def test_the_probe_is_built_by_the_same_compilers() -> None:
    target = build._TARGETS["linux-arm64"]
    assert target.variable == CROSS_COMPILER_VARIABLE
    assert target.zig
    assert (*target.cross_compilers, "zig") == CROSS_COMPILERS


def test_a_compiler_that_refuses(tmp_path: Path) -> None:
    refusing = tmp_path / "cc"
    refusing.write_text("#!/bin/sh\necho I will not >&2\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(ConfigError, match="I will not"):
        build_shim([os.fspath(refusing)], tmp_path / "cache")
    assert list((tmp_path / "cache").rglob("*.so")) == []
