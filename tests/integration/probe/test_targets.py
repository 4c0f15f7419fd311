"""Probes for other targets: cross compiled, and of an NDK (a stand-in for it)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.probe import build
from harness.probe.build import ProbeBuilder, read_sources, source_hash
from harness.runtimes.elf import read_elf
from tests.android import bionic
from tests.integration.probe.stand_in_ndk import CROSS, make_stand_in_ndk
from tests.needed import ANDROID, need

SYSTEM = {"PATH": os.environ["PATH"]}
SMALL = b"int main(void) { return 0; }\n"  # compiled at once, where only the compiler matters
SOURCE = source_hash(read_sources())


@pytest.fixture(scope="module")
def ndk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not the real NDK: see stand_in_ndk.py."""
    need(CROSS)
    return make_stand_in_ndk(tmp_path_factory.mktemp("stand-in ndk".replace(" ", "-")))


def version(command: list[object]) -> str:
    return said_by(*command, "--version")


def said_by(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


def test_it_says_what_it_is(plain_probe: Path) -> None:
    said = version([plain_probe])
    assert said == f"qnn-probe protocol=2 source={SOURCE} target=linux-x64\n"
    assert f"source={SOURCE} target=linux-x64".encode() in plain_probe.read_bytes()


@pytest.mark.needs(CROSS)
@pytest.mark.needs("qemu-aarch64")
def test_the_cross_compiled_one_runs_and_says_the_same(tmp_path: Path) -> None:
    probe = ProbeBuilder(tmp_path, SYSTEM).build("linux-arm64")
    assert f"source={SOURCE} target=linux-arm64".encode() in probe.read_bytes()
    facts = read_elf(probe.read_bytes())
    assert (facts.machine, facts.libc) == ("aarch64", "glibc")
    said = version(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", probe])
    assert said == f"qnn-probe protocol=2 source={SOURCE} target=linux-arm64\n"


@pytest.mark.needs(CROSS)
@pytest.mark.parametrize(
    ("device_api", "level"), [(None, 21), (29, 21), (30, 30), (33, 30), (36, 34)]
)
def test_the_ndk_compiler_is_chosen_by_the_device(
    ndk: Path, tmp_path: Path, device_api: int | None, level: int
) -> None:
    builder = ProbeBuilder(tmp_path, {"ANDROID_NDK_HOME": str(ndk)} | SYSTEM)
    probe = builder.build("android-arm64", android_api=device_api)
    facts = read_elf(probe.read_bytes())
    assert (facts.bits, facts.machine, facts.libc) == (64, "aarch64", "bionic")
    assert facts.android_api == level
    assert f"source={SOURCE} target=android-arm64".encode() in probe.read_bytes()


@pytest.mark.needs(ANDROID)
@pytest.mark.needs("readelf")
@pytest.mark.needs("nm")
def test_the_ndk_builds_what_every_phone_of_a_level_loads(tmp_path: Path) -> None:
    environment = {"ANDROID_NDK_HOME": str(bionic.ndk())} | SYSTEM
    probe = ProbeBuilder(tmp_path, environment).build("android-arm64", android_api=24)
    facts = read_elf(probe.read_bytes())
    assert (facts.machine, facts.libc, facts.android_api) == ("aarch64", "bionic", 24)
    assert set(facts.needed) == {"libc.so", "libdl.so"}
    headers = said_by("readelf", "-hlW", probe)
    assert re.search(r"Type: +DYN ", headers)
    pages = {line.split()[-1] for line in headers.splitlines() if line.split()[:1] == ["LOAD"]}
    assert pages == {"0x4000"}
    stubs = bionic.stub_libraries(24)
    offered = {name for stub in stubs for _, name in symbols_of("--defined-only", stub)}
    # what is weak may be missing: ExecuTorch's runner, which only another build has
    expected = {name for kind, name in symbols_of("--undefined-only", probe) if kind == "U"}
    assert expected
    assert expected <= offered


def symbols_of(option: str, file: Path) -> list[tuple[str, str]]:
    """Their kinds and names."""
    lines = said_by("nm", "-D", "--without-symbol-versions", option, file).splitlines()
    return [(kind, name) for *_, kind, name in map(str.split, lines)]


@pytest.mark.needs(CROSS)
def test_a_compiler_that_links_with_another_libc_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "read_sources", lambda: {"main.c": SMALL})
    builder = ProbeBuilder(tmp_path, {"CC_ANDROID_ARM64": CROSS} | SYSTEM)
    with pytest.raises(ConfigError, match="linked with glibc, and android-arm64 has bionic"):
        builder.build("android-arm64")


@pytest.mark.needs(CROSS)
def test_an_ndk_may_be_too_new_for_a_device(
    ndk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "read_sources", lambda: {"main.c": SMALL})
    builder = ProbeBuilder(tmp_path, {"ANDROID_NDK_HOME": str(ndk)} | SYSTEM)
    assert builder.build("android-arm64", android_api=34).is_file()
    with pytest.raises(ConfigError, match="the device has 19"):
        builder.build("android-arm64", android_api=19)
