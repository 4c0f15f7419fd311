"""Checks of prebuilt probes, and the choice of an NDK's compiler for a device."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.probe.build import (
    FOLDER_VARIABLE,
    PROTOCOL,
    Ndk,
    ProbeIdentity,
    checked_prebuilt,
    find_ndk,
    find_prebuilt,
    fitting_level,
    identity_of,
    mismatches,
    read_ndk,
)
from harness.runtimes.elf import ElfFacts

SOURCE = "ab" * 32
OTHER = "cd" * 32


def facts(needed: tuple[str, ...] = ("libc.so",), api: int | None = 30) -> ElfFacts:
    return ElfFacts(64, "aarch64", 0, None, needed, (), (), api)


GOOD = ProbeIdentity(PROTOCOL, SOURCE, "android-arm64")
GLIBC = facts(("libc.so.6",), None)


@pytest.mark.parametrize(
    ("elf", "identity", "device_api", "message"),
    [
        (facts(), GOOD, 34, []),
        (facts(), GOOD, None, []),
        (facts((), None), GOOD, 34, []),
        (facts(api=35), GOOD, 34, ["Android API 35, the device has 34"]),
        (GLIBC, GOOD, 34, ["linked with glibc, and android-arm64 has bionic"]),
        (facts(), None, 34, ["does not say what it was built from"]),
        (facts(), ProbeIdentity(1, SOURCE, "android-arm64"), 34, ["speaks protocol 1"]),
        (
            facts(),
            ProbeIdentity(PROTOCOL, OTHER, "android-arm64"),
            34,
            [f"the sources {OTHER[:16]}"],
        ),
        (
            GLIBC,
            ProbeIdentity(3, OTHER, "linux-arm64"),
            34,
            ["linked with glibc", "for linux-arm64", "protocol 3", OTHER[:16]],
        ),
    ],
)
def test_each_mismatch_is_named(
    elf: ElfFacts, identity: ProbeIdentity | None, device_api: int | None, message: list[str]
) -> None:
    problems = mismatches(elf, identity, "android-arm64", source=SOURCE, android_api=device_api)
    assert len(problems) == len(message)
    assert all(part in text for part, text in zip(message, problems, strict=True))


@given(st.binary(max_size=300))
def test_an_identity_is_read_out_of_anything(data: bytes) -> None:
    identity_of(data)
    text = b"qnn-probe protocol=2 source=" + SOURCE.encode() + b" target=linux-x64\0"
    assert identity_of(b"\0" + text + data) == ProbeIdentity(PROTOCOL, SOURCE, "linux-x64")


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x01" + b"\0" * 60])
def test_what_is_no_program_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "qnn-probe").write_bytes(content)
    with pytest.raises(ConfigError, match="not a 64-bit program for linux-x64"):
        checked_prebuilt(tmp_path / "qnn-probe", "linux-x64", source=SOURCE, android_api=None)


def test_where_a_prebuilt_probe_is_looked_for(tmp_path: Path) -> None:
    named = {FOLDER_VARIABLE: str(tmp_path)}
    assert find_prebuilt({}, "linux-x64") is None
    assert find_prebuilt(named, "linux-x64") is None
    flat = tmp_path / "qnn-probe-linux-x64"
    flat.write_bytes(b"")
    assert find_prebuilt(named, "linux-x64") == flat
    nested = tmp_path / "linux-x64/qnn-probe"
    nested.parent.mkdir()
    nested.write_bytes(b"")
    assert find_prebuilt(named, "linux-x64") == nested
    assert find_prebuilt(named, "android-arm64") is None
    with pytest.raises(ConfigError, match="is not a folder"):
        find_prebuilt({FOLDER_VARIABLE: str(flat)}, "linux-x64")


@pytest.mark.parametrize(
    ("device", "level"), [(None, 21), (21, 21), (29, 26), (30, 30), (34, 34), (36, 35)]
)
def test_the_newest_level_that_the_device_has(device: int | None, level: int) -> None:
    assert fitting_level((35, 21, 26, 30, 34), device) == level


def test_a_device_that_is_older_than_the_ndk() -> None:
    with pytest.raises(ConfigError, match="API 21 and newer, and the device has 19"):
        fitting_level((21, 35), 19)


def test_a_folder_that_is_no_ndk(tmp_path: Path) -> None:
    assert find_ndk({}) is None
    ndk = find_ndk({"ANDROID_NDK_ROOT": str(tmp_path)})
    assert ndk == Ndk(tmp_path, "ANDROID_NDK_ROOT", None, {})
    with pytest.raises(ConfigError, match=r"ANDROID_NDK_ROOT: .* is no NDK"):
        ndk.compiler(34)


def test_a_path_goes_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "source.properties").write_text(
        "Pkg.Desc = Android NDK\nPkg.Revision = 27.2.12479018\n"
    )
    ndk = find_ndk({"ANDROID_NDK_HOME": "/nowhere"}, tmp_path)
    assert ndk is not None
    assert (ndk.root, ndk.revision) == (tmp_path, "27.2.12479018")
    assert read_ndk(Path("/proc/1/nowhere"), "x").compilers == {}
