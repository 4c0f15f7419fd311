"""Preflight on the real libraries: nothing in a whole wheel, and a mix of two file by file."""

import functools
import re
import subprocess
from dataclasses import replace

import pytest

from harness.core.socs import SOCS
from harness.runtimes.catalog import Catalog
from harness.runtimes.preflight import ContextFacts, PreflightInput, TargetFacts, preflight
from harness.runtimes.runtime import LibraryFacts, Runtime, SdkBuild, read_library
from tests.integration.conftest import RuntimeFor

BOARD = TargetFacts("linux-arm64", soc="SM8550", glibc="2.35")
HOST = TargetFacts("linux-x64", glibc="2.36")
BUILDS = {"2.47.0": "260601114230", "2.51.0": "260929181845"}

read = functools.cache(read_library)


def facts_of(runtime: Runtime) -> tuple[LibraryFacts, ...]:
    return tuple(read(file.path, file.name) for file in runtime.files)


def named(files: tuple[LibraryFacts, ...], *names: str) -> list[LibraryFacts]:
    return [file for file in files if file.file_name in names]


@pytest.mark.parametrize("version", ["2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0"])
def test_a_whole_wheel_for_this_host_is_clean(version: str, runtime_for: RuntimeFor) -> None:
    files = facts_of(runtime_for(version))
    context = ContextFacts("context.bin", version, 73)
    assert preflight(PreflightInput(files, HOST, contexts=[context], qnn_version=version)) == []
    (backend,) = [file for file in files if file.kind == "backend-htp"]
    (system,) = [file for file in files if file.kind == "system"]
    assert backend.build.version == version
    assert system.build == SdkBuild("", backend.build.stamp)


@pytest.mark.parametrize("version", list(BUILDS))
@pytest.mark.parametrize("soc", [name for name, soc in SOCS.items() if soc.htp_arch is not None])
def test_a_whole_wheel_for_boards_is_clean(version: str, soc: str, runtime_for: RuntimeFor) -> None:
    files = facts_of(runtime_for(version, "linux-arm64"))
    assert preflight(PreflightInput(files, replace(BOARD, soc=soc), qnn_version=version)) == []
    assert {file.build for file in files if file.kind not in ("system", "c++-runtime")} == {
        SdkBuild(version, BUILDS[version])
    }


def test_a_mix_for_a_board_is_named_file_by_file(runtime_for: RuntimeFor) -> None:
    new = facts_of(runtime_for("2.51.0", "linux-arm64"))
    old = facts_of(runtime_for("2.47.0", "linux-arm64"))
    mix = [
        *named(new, "libQnnHtp.so", "libQnnHtpV73Stub.so"),
        *named(old, "libQnnHtpV73Skel.so", "libQnnSystem.so"),
    ]
    findings = preflight(PreflightInput(mix, BOARD, qnn_version="2.51.0"))
    assert [
        (finding.code, finding.severity, finding.files[0].split("/")[1]) for finding in findings
    ] == [("sdk-mix", "error", "libQnnHtpV73Skel.so"), ("sdk-mix", "warning", "libQnnSystem.so")]
    assert "is of 2.47.0.260601114230" in findings[0].explanation
    assert "of 2.51.0.260929181845" in findings[1].explanation


@pytest.mark.parametrize(
    ("qnn", "ort", "codes"),
    [
        ("2.47.0", None, []),
        ("2.51.0", None, []),
        ("2.47.0", "1.31.1", ["ort-too-new"]),
        ("2.51.0", "1.31.1", []),
        ("2.51.0", "1.22.0", ["ort-too-old"]),
    ],
)
def test_the_real_plugin_and_ort(
    qnn: str, ort: str | None, codes: list[str], catalog: Catalog
) -> None:
    host = catalog.compiler_host(qnn)
    plugin = read_library(host.plugin, host.plugin.name)
    files = [*facts_of(catalog.runtime(qnn, "linux-x64")), plugin]
    if ort is None:
        (core,) = host.ort_root.glob("onnxruntime/capi/libonnxruntime.so.*")
        files.append(read_library(core, core.name))
        assert files[-1].ort_version == host.ort_version
    findings = preflight(PreflightInput(files, HOST, ort_version=ort))
    assert [finding.code for finding in findings] == codes


@pytest.mark.needs("readelf")
@pytest.mark.parametrize("target", ["linux-x64", "linux-arm64"])
def test_readelf_says_the_same(target: str, runtime_for: RuntimeFor) -> None:
    runtime = runtime_for("2.51.0", target)
    for file, facts in zip(runtime.files, facts_of(runtime), strict=True):
        command = ["readelf", "--dynamic", "--version-info", "--wide", str(file.path)]
        completed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert list(facts.elf.needed) == re.findall(r"Shared library: \[(.*?)\]", completed)
        versions = re.findall(r"Name: (\S+)  Flags: none", completed)
        assert sorted(version for _, version in facts.elf.version_needs) == sorted(versions)
