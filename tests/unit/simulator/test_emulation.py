"""What a computer needs to simulate a device of another CPU, and what is said where it is not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.probe import build
from harness.simulator.board import LOADER
from harness.simulator.emulation import (
    CROSS_COMPILER_VARIABLE,
    CROSS_COMPILERS,
    LIBRARIES_VARIABLE,
    Tools,
    build_shim,
    find_tools,
    missing,
)

ALL = Tools(Path("/q"), Path("/l"), ("/cc",), "/x", Path("/l/c++"))


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (ALL, []),
        (
            replace(ALL, qemu=None),
            ["qemu-aarch64 (apt install qemu-user)"],
        ),
        (
            replace(ALL, libraries=None, cross=None, cpp=None),
            [
                "the arm64 C library (apt install libc6-dev-arm64-cross)",
                "aarch64-linux-gnu-gcc or zig (apt install gcc-aarch64-linux-gnu)",
            ],
        ),
        (replace(ALL, cpp=None), ["its C++ runtime (apt install libstdc++6-arm64-cross)"]),
        (replace(ALL, compiler=None), ["a C compiler (apt install gcc)"]),
    ],
)
def test_what_is_missing_is_named_with_its_package(tools: Tools, said: list[str]) -> None:
    assert [str(lack) for lack in missing(tools)] == said


def test_tools_are_found_where_variables_say(tmp_path: Path) -> None:
    for name in ("qemu-aarch64-static", "my-cross", "my-cc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / LOADER).touch()
    (tmp_path / "libstdc++.so.6").touch()
    environment = {
        "PATH": str(tmp_path),
        "CC": "my-cc -m64",
        CROSS_COMPILER_VARIABLE: "my-cross -O1",
        LIBRARIES_VARIABLE: str(tmp_path),
    }
    found = find_tools(environment)
    assert found.qemu == tmp_path / "qemu-aarch64-static"
    assert found.libraries == tmp_path
    assert found.compiler == (str(tmp_path / "my-cc"), "-m64")
    assert found.cross == str(tmp_path / "my-cross")
    assert missing(found) == []
    nothing = find_tools({"PATH": "/nonexistent", LIBRARIES_VARIABLE: "/nonexistent"})
    assert nothing == Tools(None, None, None, None, None)


def test_the_probe_is_built_by_the_same_compilers() -> None:
    target = build._TARGETS["linux-arm64"]
    assert target.variable == CROSS_COMPILER_VARIABLE
    assert tuple(command[0] for command in target.cross_compilers) == CROSS_COMPILERS


def test_a_compiler_that_refuses(tmp_path: Path) -> None:
    refusing = tmp_path / "cc"
    refusing.write_text("#!/bin/sh\necho I will not >&2\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(ConfigError, match="I will not"):
        build_shim([os.fspath(refusing)], tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
