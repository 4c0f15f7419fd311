"""ONNX Runtime for a device: of a wheel, a folder or an AAR, and a runtime joined with it."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.core.files import LocalFile
from harness.runtimes.catalog import Catalog
from harness.runtimes.local_sources import FolderSource
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
from tests.snapshots import Snapshot
from tests.unit.runtimes.elf_files import elf_file


def file(name: str, sha256: str = "a") -> LocalFile:
    return LocalFile(Path("/cache") / name, name, 10, sha256)


RUNTIME = Runtime(
    qnn_version="2.51.0",
    target="linux-x64",
    root=Path("/cache"),
    files=(file("onnxruntime_qnn/libQnnHtp.so"), file("onnxruntime_qnn.libs/libc++.so")),
)
ORT = file("onnxruntime/capi/libonnxruntime.so.1.26.0")
ORT_FILE = elf_file(needed=["libc.so.6"], defines=["VERS_1.21.0"])
ANDROID = elf_file(needed=["libc.so"], defines=["VERS_1.21.1"], android_api=24)
HTP = elf_file(needed=["libc.so.6"], content=b"\0v2.49.0.260701120000\0")


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
        ("latest,1.24.1", ["1.31.1", "1.24.1"]),
        (">=1.25,<1.27", ["1.25.0", "1.25.1", "1.26.0"]),
        ("all", list(ORT_VERSIONS)),
    ],
)
def test_versions_that_exist(spec: str, versions: list[str], wheels: OrtLibraries) -> None:
    assert wheels.resolve(spec, "linux-x64") == versions
    assert wheels.versions("linux-x64") == wheels.versions("linux-arm64") == list(ORT_VERSIONS)
    assert wheels.versions("android-arm64") == []
    assert not wheels.is_cached("1.26.0", "linux-x64")


@pytest.mark.parametrize("spec", ["", "1.25", "1.23.0", ">=2", "newest", "sdk:1.26.0"])
def test_versions_that_do_not_exist(spec: str, wheels: OrtLibraries) -> None:
    with pytest.raises(ConfigError, match="ORT version") as error:
        wheels.resolve(spec, "linux-x64", field="--ort")
    assert error.value.field == "--ort"


@pytest.mark.parametrize(
    ("name", "is_it"),
    [
        ("onnxruntime/capi/libonnxruntime.so.1.26.0", True),
        ("onnxruntime/capi/libonnxruntime_providers_shared.so", False),
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
    assert joined(RUNTIME, "1.26.0", [replace(ORT, sha256="b")]).key != combined.key
    with pytest.raises(ConfigError):
        ort_library_of(RUNTIME)


@pytest.fixture
def wheels(tmp_path: Path) -> OrtLibraries:
    return OrtLibraries(WheelCache(tmp_path), tmp_path)


def test_a_runtime_with_an_ort_of_its_own_stays_as_it_is(
    wheels: OrtLibraries, snapshot: Snapshot
) -> None:
    with_ort = replace(RUNTIME, ort_version="1.22.0", source="aar")
    assert wheels.join(with_ort, "1.22.0", []) is with_ort
    assert wheels.join(with_ort, None, []) is with_ort
    with snapshot.raises(ConfigError):
        wheels.join(with_ort, "1.26.0", [])
    # without the plug-in it takes none
    with snapshot.raises(ConfigError):
        wheels.join(RUNTIME, "1.26.0", [])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "cache")


def folder_with(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_a_folder(catalog: Catalog, tmp_path: Path) -> None:
    place = folder_with(tmp_path / "ORT", {"lib/libonnxruntime.so.1.21.0": ORT_FILE})
    (name,) = catalog.ort.resolve(str(place), "linux-arm64")
    assert name == "ort:1.21.0"
    libraries = folder_with(tmp_path / "qnn", {"libQnnHtp.so": HTP})
    runtime = FolderSource("qnn", libraries, tmp_path / "cache").runtime(
        "2.49.0.260701", "linux-arm64"
    )
    combined = catalog.ort.join(runtime, name)
    assert [file.name for file in combined.files] == [
        "lib/libQnnHtp.so",
        "ort/libonnxruntime.so.1.21.0",
    ]
    assert (combined.ort_version, combined.library_dirs) == ("1.21.0", ("lib", "ort"))
    assert combined.key != runtime.key


def test_an_aar(catalog: Catalog, tmp_path: Path, snapshot: Snapshot) -> None:
    with zipfile.ZipFile(tmp_path / "onnxruntime-android-qnn.aar", "w") as archive:
        archive.writestr("jni/arm64-v8a/libonnxruntime.so", ANDROID)
        archive.writestr("jni/arm64-v8a/libonnxruntime4j_jni.so", ANDROID)
    place = str(tmp_path / "onnxruntime-android-qnn.aar")
    assert catalog.ort.resolve(place, "android-arm64") == ["onnxruntime-android-qnn:1.21.1"]
    with snapshot.raises(ConfigError):
        catalog.ort.resolve(place, "linux-arm64", field="--ort")


PLACES: tuple[dict[str, bytes], ...] = (
    {"x.txt": b""},
    {"a/libonnxruntime.so": ORT_FILE, "b/libonnxruntime.so": ORT_FILE},
    {"libonnxruntime.so": b"no library"},
    {"libonnxruntime.so": HTP},
)


def test_places_that_are_none(catalog: Catalog, tmp_path: Path, snapshot: Snapshot) -> None:
    texts = []
    for number, files in enumerate(PLACES):
        place = folder_with(tmp_path / f"place-{number}", files)
        with pytest.raises(ConfigError) as refused:
            catalog.ort.resolve(str(place), "linux-arm64")
        texts.append(str(refused.value))
    assert texts == snapshot


def test_words_that_mean_nothing(catalog: Catalog, snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        catalog.ort.resolve("/no/such/place", "linux-x64")
    with snapshot.raises(ConfigError):
        catalog.ort.resolve("latest", "android-arm64", field="--ort")
