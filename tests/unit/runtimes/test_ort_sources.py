"""An ONNX Runtime of a folder or an AAR, by its path."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.runtimes.catalog import Catalog
from harness.runtimes.local_sources import FolderSource
from tests.unit.runtimes.elf_files import elf_file

ORT = elf_file(needed=["libc.so.6"], defines=["VERS_1.21.0"], soname="libonnxruntime.so.1")
ANDROID = elf_file(needed=["libc.so"], defines=["VERS_1.21.1"], android_api=24)
HTP = elf_file(needed=["libc.so.6"], content=b"\0v2.49.0.260701120000\0")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path / "cache")


def folder_with(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_a_folder(catalog: Catalog, tmp_path: Path) -> None:
    place = folder_with(tmp_path / "ORT", {"lib/libonnxruntime.so.1.21.0": ORT})
    (name,) = catalog.ort.resolve(str(place), "linux-arm64")
    assert name == "ort:1.21.0"
    libraries = folder_with(tmp_path / "qnn", {"libQnnHtp.so": HTP})
    runtime = FolderSource("qnn", libraries, tmp_path / "cache").runtime(
        "2.49.0.260701", "linux-arm64"
    )
    joined = catalog.ort.join(runtime, name)
    assert [file.name for file in joined.files] == [
        "lib/libQnnHtp.so",
        "ort/libonnxruntime.so.1.21.0",
    ]
    assert (joined.ort_version, joined.library_dirs) == ("1.21.0", ("lib", "ort"))
    assert joined.key != runtime.key


def test_an_aar(catalog: Catalog, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "onnxruntime-android-qnn.aar", "w") as archive:
        archive.writestr("jni/arm64-v8a/libonnxruntime.so", ANDROID)
        archive.writestr("jni/arm64-v8a/libonnxruntime4j_jni.so", ANDROID)
    place = str(tmp_path / "onnxruntime-android-qnn.aar")
    assert catalog.ort.resolve(place, "android-arm64") == ["onnxruntime-android-qnn:1.21.1"]
    with pytest.raises(ConfigError, match=r"--ort: .* has an ORT for android-arm64, not for lin"):
        catalog.ort.resolve(place, "linux-arm64", field="--ort")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"x.txt": b""}, "holds 0 libraries of ORT"),
        ({"a/libonnxruntime.so": ORT, "b/libonnxruntime.so": ORT}, "holds 2 libraries of ORT"),
        ({"libonnxruntime.so": b"no library"}, "does not say which version"),
        ({"libonnxruntime.so": HTP}, "does not say which version"),
    ],
)
def test_places_that_are_none(
    files: dict[str, bytes], message: str, catalog: Catalog, tmp_path: Path
) -> None:
    place = folder_with(tmp_path / "place", files)
    with pytest.raises(ConfigError, match=message):
        catalog.ort.resolve(str(place), "linux-arm64")


def test_words_that_mean_nothing(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        catalog.ort.resolve("/no/such/place", "linux-x64")
    with pytest.raises(ConfigError, match=r"--ort: PyPI has no ONNX Runtime for android-arm64"):
        catalog.ort.resolve("latest", "android-arm64", field="--ort")
    assert catalog.ort.resolve(">=1.24,<1.25", "linux-x64")[0] == "1.24.1"
    assert catalog.ort.resolve("1.26", "linux-x64") == ["1.26.0"]
