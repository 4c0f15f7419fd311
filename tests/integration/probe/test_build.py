"""The probe's build: once per source, flags and compiler, for each target."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, InfraError
from harness.probe import build
from harness.probe.build import (
    CAME_ALONG,
    ProbeBuilder,
    check_probe,
    read_sources,
    source_hash,
)
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan_locally
from harness.runtimes.elf import read_elf
from tests.snapshots import Snapshot

CROSS = "aarch64-linux-gnu-gcc"
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


@pytest.mark.usefixtures("small_source")
def test_without_a_usable_compiler(
    tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "find_zig", lambda: None)
    for environment, target in (
        ({"PATH": "/nonexistent"}, "linux-x64"),
        ({"PATH": "/nonexistent", "CC": " "}, "linux-x64"),
        ({"CC": "no-such-cc -m64"} | SYSTEM, "linux-x64"),
        ({"PATH": "/nonexistent"}, "linux-arm64"),
        ({"PATH": "/nonexistent"}, "android-arm64"),
        (SYSTEM, "windows"),
    ):
        with snapshot.raises(ConfigError):
            ProbeBuilder(tmp_path, environment).build(target)
    for command, words in (("'cc", "CC"), ("true", "true"), ("cc --no-such-flag", "no-such-flag")):
        with pytest.raises(ConfigError, match=words):
            ProbeBuilder(tmp_path, {"CC": command} | SYSTEM).build()
    with pytest.raises(ConfigError, match="x86-64"):
        ProbeBuilder(tmp_path, {"CC_LINUX_ARM64": "cc"} | SYSTEM).build("linux-arm64")


@pytest.mark.needs(CROSS)
def test_a_program_that_is_linked_with_another_libc(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([CROSS, "main.c", "-o", "program"], cwd=tmp_path, check=True, timeout=60)
    with pytest.raises(ConfigError, match="glibc") as caught:
        check_probe(tmp_path / "program", "android-arm64")
    assert caught.value.file


@pytest.mark.slow
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


def test_what_cannot_be_written_or_used(
    plain_probe: Path, tmp_path: Path, snapshot: Snapshot
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(InfraError):
        ProbeBuilder(tmp_path / "cache", SYSTEM).build()
    assert check_probe(plain_probe, "linux-x64") == plain_probe
    snapshot.hide(plain_probe, "PROBE")
    with snapshot.raises(ConfigError):
        check_probe(plain_probe, "android-arm64")
    with snapshot.raises(ConfigError):
        check_probe(tmp_path / "missing", "linux-x64")


@pytest.mark.parametrize("target", ["linux-x64", "linux-arm64", "android-arm64"])
def test_a_probe_that_is_shipped_needs_no_compiler(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "SHIPPED", tmp_path)
    monkeypatch.setattr(build, "find_zig", lambda: None)
    builder = ProbeBuilder(tmp_path, {"PATH": str(tmp_path)})
    identity = "qnn-probe protocol=2 source={} target=" + target
    for source in ("", "0" * 64):  # none, and one of other sources
        (tmp_path / f"qnn-probe-{target}").write_text(identity.format(source))
        with pytest.raises(ConfigError):
            builder.origin(target)
    source = source_hash(read_sources())
    (tmp_path / f"qnn-probe-{target}").write_text(identity.format(source))
    assert builder.origin(target) == CAME_ALONG


SOURCE = source_hash(read_sources())


def said_by(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.slow
@pytest.mark.needs(CROSS)
@pytest.mark.needs("qemu-aarch64")
def test_it_says_what_it_is(plain_probe: Path, tmp_path: Path) -> None:
    cross = ProbeBuilder(tmp_path, SYSTEM).build("linux-arm64")
    facts = read_elf(cross.read_bytes())
    assert (facts.machine, facts.libc) == ("aarch64", "glibc")
    emulator = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
    for target, *command in (("linux-x64", plain_probe), ("linux-arm64", *emulator, cross)):
        identity = f"qnn-probe protocol=2 source={SOURCE} target={target}"
        assert said_by(*command, "--version") == f"{identity}\n"
        assert identity.encode() in Path(command[-1]).read_bytes()
    needed = set(read_elf(plain_probe.read_bytes()).needed)
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}, "nothing but the C library"
