"""ORT for a device: which wheel, and what a runtime with ORT is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.core.local_file import LocalFile
from harness.runtimes.ort import (
    ORT_DEVICE_VERSION,
    ORT_PLATFORMS,
    ORT_VERSIONS,
    PLUGIN,
    OrtLibraries,
    is_ort_library,
    joined,
    ort_library_of,
    ort_request,
)
from harness.runtimes.pypi import WheelCache, known_sha256
from harness.runtimes.runtime import Runtime


def file(name: str, sha256: str = "a") -> LocalFile:
    return LocalFile(Path("/cache") / name, name, 10, sha256)


RUNTIME = Runtime(
    qnn_version="2.51.0",
    target="linux-x64",
    root=Path("/cache"),
    files=(file("onnxruntime_qnn/libQnnHtp.so"), file("onnxruntime_qnn.libs/libc++.so")),
)
ORT = file("onnxruntime/capi/libonnxruntime.so.1.26.0")


@pytest.mark.parametrize("target", ORT_PLATFORMS)
@pytest.mark.parametrize("version", ORT_VERSIONS)
def test_every_wheel_is_known_by_its_hash(version: str, target: str) -> None:
    assert ort_request(version, target).file_name in known_sha256()


def test_versions_come_oldest_first() -> None:
    parsed = [tuple(map(int, version.split("."))) for version in ORT_VERSIONS]
    assert parsed == sorted(set(parsed))
    assert ORT_DEVICE_VERSION in ORT_VERSIONS


@pytest.mark.parametrize(
    ("version", "target"), [("1.20.0", "linux-x64"), ("", "linux-x64"), ("1.26.0", "android-arm64")]
)
def test_what_there_is_no_wheel_of(version: str, target: str) -> None:
    with pytest.raises(ConfigError) as error:
        ort_request(version, target)
    assert error.value.choices


@pytest.mark.parametrize(
    ("spec", "versions"),
    [
        ("1.26.0", ["1.26.0"]),
        ("1.27", ["1.27.0"]),
        ("latest,1.24.1", ["1.31.1", "1.24.1"]),
        (">=1.25,<1.27", ["1.25.0", "1.25.1", "1.26.0"]),
        (">=1.24,<1.32", list(ORT_VERSIONS)),
        ("all", list(ORT_VERSIONS)),
    ],
)
def test_versions_that_exist(spec: str, versions: list[str], wheels: OrtLibraries) -> None:
    assert wheels.resolve(spec, "linux-x64") == versions


@pytest.mark.parametrize("spec", ["", "1.25", "1.23.0", ">=2", "newest", "sdk:1.26.0"])
def test_versions_that_do_not_exist(spec: str, wheels: OrtLibraries) -> None:
    with pytest.raises(ConfigError, match="ORT version") as error:
        wheels.resolve(spec, "linux-x64", field="--ort")
    assert error.value.field == "--ort"


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("onnxruntime/capi/libonnxruntime.so.1.26.0", True),
        ("onnxruntime/capi/libonnxruntime.so", True),
        ("onnxruntime/capi/libonnxruntime_providers_shared.so", False),
        ("onnxruntime/capi/onnxruntime_pybind11_state.cpython-312-x86_64-linux-gnu.so", False),
        ("onnxruntime/capi/deep/libonnxruntime.so.1", False),
        ("libonnxruntime.so.1", False),
    ],
)
def test_which_file_of_a_wheel_is_the_library(name: str, is_it: bool) -> None:
    assert is_ort_library(name) == is_it


def test_a_runtime_with_ort() -> None:
    combined = joined(RUNTIME, "1.26.0", [ORT, file(f"onnxruntime_qnn/{PLUGIN}")])
    assert (combined.qnn_version, combined.ort_version, combined.target) == (
        "2.51.0",
        "1.26.0",
        "linux-x64",
    )
    assert combined.library_dirs == ("onnxruntime_qnn", "onnxruntime_qnn.libs", "onnxruntime/capi")
    assert combined.key != RUNTIME.key
    assert {file.name for file in RUNTIME.files} < {file.name for file in combined.files}
    assert ort_library_of(combined) == "libonnxruntime.so.1.26.0"
    assert combined.key == joined(RUNTIME, "1.26.0", [file(f"onnxruntime_qnn/{PLUGIN}"), ORT]).key


def test_another_ort_makes_another_runtime() -> None:
    other = replace(ORT, sha256="b")
    assert joined(RUNTIME, "1.26.0", [ORT]).key != joined(RUNTIME, "1.26.0", [other]).key


def test_a_runtime_without_ort() -> None:
    with pytest.raises(ConfigError):
        ort_library_of(RUNTIME)


@pytest.fixture
def wheels(tmp_path: Path) -> OrtLibraries:
    return OrtLibraries(WheelCache(tmp_path), tmp_path)


def test_a_runtime_with_an_ort_of_its_own_stays_as_it_is(wheels: OrtLibraries) -> None:
    with_ort = replace(RUNTIME, ort_version="1.22.0", source="aar")
    assert wheels.join(with_ort, "1.22.0", []) is with_ort
    assert wheels.join(with_ort, None, []) is with_ort
    with pytest.raises(ConfigError, match=r"brings ORT 1\.22\.0 of its own"):
        wheels.join(with_ort, "1.26.0", [])


def test_a_runtime_without_plug_in_takes_no_ort(wheels: OrtLibraries) -> None:
    with pytest.raises(ConfigError, match="which ORT from PyPI needs"):
        wheels.join(RUNTIME, "1.26.0", [])


def test_versions_by_target(wheels: OrtLibraries) -> None:
    assert wheels.versions("linux-x64") == wheels.versions("linux-arm64") == list(ORT_VERSIONS)
    assert wheels.versions("android-arm64") == []
    assert not wheels.is_cached("1.26.0", "linux-x64")
