"""The choice of an NDK's compiler for a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.probe.build import Ndk, find_ndk, read_ndk


def ndk_of(*levels: int) -> Ndk:
    return Ndk(Path("/ndk"), "x", None, {level: Path(f"clang-{level}") for level in levels})


@pytest.mark.parametrize(
    ("device", "level"), [(None, 21), (21, 21), (29, 26), (30, 30), (34, 34), (36, 35)]
)
def test_the_newest_level_that_the_device_has(device: int | None, level: int) -> None:
    assert ndk_of(35, 21, 26, 30, 34).compiler(device) == Path(f"clang-{level}")


def test_a_device_that_is_older_than_the_ndk() -> None:
    with pytest.raises(ConfigError, match="API 21 and newer, and the device has 19"):
        ndk_of(21, 35).compiler(19)


def test_a_folder_that_is_no_ndk(tmp_path: Path) -> None:
    assert find_ndk({}) is None
    ndk = find_ndk({"ANDROID_NDK_ROOT": str(tmp_path)})
    assert ndk == Ndk(tmp_path, "ANDROID_NDK_ROOT", None, {})
    with pytest.raises(ConfigError, match=r"ANDROID_NDK_ROOT: .* is no NDK"):
        ndk.compiler(34)


def test_its_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "source.properties").write_text(
        "Pkg.Desc = Android NDK\nPkg.Revision = 27.2.12479018\n"
    )
    ndk = find_ndk({"ANDROID_NDK_HOME": str(tmp_path)})
    assert ndk is not None
    assert (ndk.root, ndk.revision) == (tmp_path, "27.2.12479018")
    assert read_ndk(Path("/proc/1/nowhere"), "x").compilers == {}
