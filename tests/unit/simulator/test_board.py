"""A simulated board: what is laid out, what it says of itself, and what cannot be one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.dsp.simulated_dsp import DspLimits, DspPrograms
from harness.simulator.board import (
    CROSS_COMPILER_VARIABLE,
    FOLDER,
    LIBRARIES_VARIABLE,
    LOADER,
    ZIG_TARGET,
    Board,
    BoardDsp,
    board_environment,
    build_shim,
    dsp_files,
    find_tools,
    install_board,
    libc_version,
    soc_files,
)
from harness.simulator.device import DeviceSettings
from tests.snapshots import Snapshot

LIBC = b"\x7fELF..GNU C Library (Debian GLIBC 2.36-8cross1) stable release version 2.36.\nCopy"
LIBRARIES = ("libc.so.6", "ld-linux-aarch64.so.1", "libstdc++.so.6.0.30", "libasan.so.8", "libm.a")


def board_of(folder: Path) -> Board:
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in LIBRARIES:
        (libraries / name).write_bytes(LIBC)
    return Board(Path("/opt/qemu"), Path("/opt/shim.so"), libraries, soc_files("SM8650", 557))


def with_dsp(board: Board) -> Board:
    programs = DspPrograms(Path("/opt/emulator"), Path("/opt/loader"))
    dsp = BoardDsp(Path("/opt/rpc.so"), programs, DspLimits(arch=75, sessions=2))
    return replace(board, files={**board.files, **dsp_files()}, dsp=dsp)


def test_a_board_is_links_and_what_it_shows(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    board = board_of(tmp_path)
    install_board(board, storage)
    folder = storage / FOLDER
    names = sorted(path.name for path in (folder / "root/lib").iterdir())
    assert names == ["ld-linux-aarch64.so.1", "libc.so.6", "libstdc++.so.6.0.30"]
    assert (folder / "root/sys/devices/soc0/soc_id").read_text() == "557\n"
    assert (folder / "root/sys/devices/system/soc/soc0/id").read_text() == "557\n"
    assert str((folder / "libc").readlink()) == "glibc 2.36"
    assert board_environment(board, storage) == {"LD_PRELOAD": f"{folder}/board.so"}
    assert not (folder / "dsp").exists()


def test_a_board_with_a_dsp_has_the_library_that_leads_to_it(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    board = with_dsp(board_of(tmp_path))
    install_board(board, storage)
    folder = storage / FOLDER
    for place in ("lib", "usr/lib/aarch64-linux-gnu"):
        assert (folder / "root" / place / "libcdsprpc.so").readlink() == Path("/opt/rpc.so")
    assert (folder / "dsp/limits").read_text().startswith("arch 75\nsessions 2\n")
    assert (folder / "dsp/qemu-hexagon").readlink() == Path("/opt/emulator")
    assert board_environment(board, storage)["QNN_DSP"] == str(folder / "dsp")
    assert (folder / "root/sys/class/remoteproc/remoteproc0/name").read_text() == "cdsp\n"


def test_a_storage_that_cannot_be_preloaded_from(tmp_path: Path, snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        install_board(board_of(tmp_path), tmp_path / "my storage")


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF GNU C Library, version unknown"])
def test_a_library_that_does_not_tell_its_version(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "libc.so.6").write_bytes(content)
    with pytest.raises(ConfigError, match=r"libc\.so\.6"):
        libc_version(tmp_path)


def test_settings_go_through_the_command_line(tmp_path: Path) -> None:
    settings = DeviceSettings(
        storage=tmp_path,
        properties={"ro.product.model": "\u00e9 \n"},
        public_key=tmp_path / "adbkey.pub",
        storage_limit_bytes=None,
        reboot_s=0.5,
        board=board_of(tmp_path),
        prepares_gpu=True,
    )
    assert settings.board is not None
    for some in (
        settings,
        replace(settings, board=None, storage_limit_bytes=5),
        replace(settings, board=with_dsp(settings.board)),
    ):
        assert DeviceSettings.from_json(some.to_json()) == some


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
    "missing",
    [
        ["qemu-aarch64-static"],
        [LOADER, "libstdc++.so.6", "my-cross"],
        ["libstdc++.so.6"],
        ["my-cc"],
    ],
    ids=" ".join,
)
def test_what_is_missing_is_named_with_its_package(
    missing: list[str], tmp_path: Path, snapshot: Snapshot
) -> None:
    environment = host(tmp_path)
    for name in missing:
        (tmp_path / name).unlink()
    with snapshot.raises(ConfigError):
        find_tools(environment)


def test_tools_are_found_where_variables_say(tmp_path: Path) -> None:
    environment = host(tmp_path)
    tools = find_tools(environment)
    assert tools.qemu == tmp_path / "qemu-aarch64-static"
    assert tools.libraries == tmp_path
    assert tools.compiler == (str(tmp_path / "my-cc"), "-m64")
    assert tools.cross == (str(tmp_path / "my-cross"), "-O1")
    del environment[CROSS_COMPILER_VARIABLE]
    assert find_tools(environment).cross == (str(tmp_path / "zig"), "cc", "-target", ZIG_TARGET)


def test_a_compiler_that_refuses(tmp_path: Path) -> None:
    refusing = tmp_path / "cc"
    refusing.write_text("#!/bin/sh\necho I will not >&2\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(ConfigError, match="I will not"):
        build_shim([os.fspath(refusing)], tmp_path / "cache")
    assert list((tmp_path / "cache").rglob("*.so")) == []
