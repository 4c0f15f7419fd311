"""The probe's build: once per source, flags and compiler; every way it can fail has its words."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, InfraError
from harness.probe import build
from harness.probe.build import ProbeBuilder, check_probe, read_sources, source_hash
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan_locally

SYSTEM = {"PATH": os.environ["PATH"]}


@pytest.fixture
def counting_compiler(tmp_path: Path) -> Path:
    """A compiler that writes down each compilation that it is asked for."""
    real = shutil.which("cc") or "cc"
    script = tmp_path / "counting-cc"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || echo x >>{tmp_path}/compilations\nexec {real} "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture
def small_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that compiles at once, where only the way to it matters."""
    sources = {"main.c": b"int main(void) { return 0; }\n"}
    monkeypatch.setattr(build, "read_sources", lambda: sources)


def compilations(folder: Path) -> int:
    counted = folder / "compilations"
    return len(counted.read_text().split()) if counted.exists() else 0


@pytest.mark.slow
def test_it_is_built_once_however_many_ask(tmp_path: Path, counting_compiler: Path) -> None:
    builders = [
        ProbeBuilder(tmp_path / "cache", {"CC": f"'{counting_compiler}'"} | SYSTEM)
        for _ in range(3)
    ]
    with ThreadPoolExecutor() as pool:
        probes = set(pool.map(ProbeBuilder.build, builders))
    assert len(probes) == 1
    assert compilations(tmp_path) == 1
    completed = run_plan_locally(probes.pop(), Plan((Step("noop"),)), env={}, timeout_s=60)
    assert completed.transcript.start is not None
    assert completed.transcript.start.source == source_hash(read_sources())
    assert completed.transcript.start.target == "linux-x64"


@pytest.mark.usefixtures("small_source")
def test_new_flags_or_another_compiler_make_another_probe(
    tmp_path: Path, counting_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_RELEASE", ("-O0", "-fPIE", "-pie"))
    first = ProbeBuilder(tmp_path, SYSTEM).build()
    second = ProbeBuilder(tmp_path, {"CC": str(counting_compiler)} | SYSTEM).build()
    monkeypatch.setattr(build, "_RELEASE", ("-O0", "-g0", "-fPIE", "-pie"))
    third = ProbeBuilder(tmp_path, SYSTEM).build()
    assert len({first, second, third}) == 3
    names = {path.name for path in first.parent.iterdir()}
    assert names <= {build.PROBE_NAME, f"{build.PROBE_NAME}.lock"}


@pytest.mark.parametrize(
    ("environment", "target", "message"),
    [
        ({"PATH": "/nonexistent"}, "linux-x64", "no C compiler found; install gcc or clang"),
        ({"PATH": "/nonexistent", "CC": " "}, "linux-x64", "no C compiler found; install gcc"),
        ({"CC": "no-such-cc -m64"} | SYSTEM, "linux-x64", "CC: no such C compiler: 'no-such-cc'"),
        ({"CC": "'cc"} | SYSTEM, "linux-x64", "CC: not a command"),
        ({"CC": "true"} | SYSTEM, "linux-x64", "does not compile the probe"),
        ({"CC": "cc --no-such-flag"} | SYSTEM, "linux-x64", "no-such-flag"),
        ({"PATH": "/nonexistent"}, "linux-arm64", "set CC_LINUX_ARM64 to a cross compiler"),
        ({"PATH": "/nonexistent"}, "android-arm64", "or ANDROID_NDK_HOME"),
        ({"CC_LINUX_ARM64": "cc"} | SYSTEM, "linux-arm64", "not a 64-bit program for linux-arm64"),
        (SYSTEM, "windows", "valid: linux-x64, linux-arm64, android-arm64"),
    ],
)
@pytest.mark.usefixtures("small_source")
def test_without_a_usable_compiler(
    tmp_path: Path, environment: dict[str, str], target: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ProbeBuilder(tmp_path, environment).build(target)
    assert message in str(caught.value)


def test_an_ndk_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "toolchains/llvm/prebuilt/linux-x86_64/bin"
    folder.mkdir(parents=True)
    for level in ("35", "29", "30"):
        compiler = folder / f"aarch64-linux-android{level}-clang"
        compiler.write_text(f"#!/bin/sh\necho the compiler for {level} >&2\nexit 1\n")
        compiler.chmod(0o755)
    builder = ProbeBuilder(tmp_path / "cache", {"ANDROID_NDK_HOME": str(tmp_path)} | SYSTEM)
    with pytest.raises(ConfigError, match="the compiler for 29"):
        builder.build("android-arm64")


def test_what_the_compiler_says_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = read_sources() | {"main.c": b"int main(void) { return nothing; }\n"}
    monkeypatch.setattr(build, "read_sources", lambda: broken)
    with pytest.raises(ConfigError) as caught:
        ProbeBuilder(tmp_path, SYSTEM).build()
    assert "native/main.c" in str(caught.value)
    assert "nothing" in str(caught.value)
    assert [path.name for path in next(tmp_path.glob("linux-x64-*")).iterdir()] == [
        "qnn-probe.lock"
    ]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(InfraError, match="cannot write to the cache"):
        ProbeBuilder(tmp_path / "cache", SYSTEM).build()


def test_a_probe_built_elsewhere(plain_probe: Path, tmp_path: Path) -> None:
    assert check_probe(plain_probe, "linux-x64") == plain_probe
    with pytest.raises(ConfigError, match="for android-arm64"):
        check_probe(plain_probe, "android-arm64")
    with pytest.raises(ConfigError, match="cannot read"):
        check_probe(tmp_path / "missing", "linux-x64")


@pytest.mark.needs("readelf")
def test_it_needs_nothing_but_the_c_library(plain_probe: Path) -> None:
    dynamic = subprocess.run(
        ["readelf", "-d", str(plain_probe)], capture_output=True, text=True, check=True
    ).stdout
    needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "NEEDED" in line}
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
