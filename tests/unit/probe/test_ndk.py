"""The choice of an NDK's compiler for a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.probe.build import ndk_compiler


def ndk(root: Path, *levels: int) -> dict[str, str]:
    folder = root / "toolchains/llvm/prebuilt/linux-x86_64/bin"
    folder.mkdir(parents=True)
    for level in levels:
        (folder / f"aarch64-linux-android{level}-clang").touch()
    return {"ANDROID_NDK_ROOT": str(root)}


@pytest.mark.parametrize(
    ("device", "level"), [(None, 21), (21, 21), (29, 26), (30, 30), (34, 34), (36, 35)]
)
def test_the_newest_level_that_the_device_has(
    device: int | None, level: int, tmp_path: Path
) -> None:
    compiler = ndk_compiler(ndk(tmp_path, 35, 21, 26, 30, 34), device)
    assert compiler is not None
    assert compiler.name == f"aarch64-linux-android{level}-clang"


def test_a_device_that_is_older_than_the_ndk(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="API 21 and newer, and the device has 19"):
        ndk_compiler(ndk(tmp_path, 21, 35), 19)


@pytest.mark.parametrize("folder", ["/proc/1/nowhere", "/nowhere", "/proc/1/cwd"])
def test_a_folder_that_is_no_ndk(folder: str) -> None:
    assert ndk_compiler({}, 34) is None
    with pytest.raises(ConfigError, match=r"ANDROID_NDK_ROOT: .* is no NDK"):
        ndk_compiler({"ANDROID_NDK_ROOT": folder}, 34)
