"""AARs give runtimes, and damaged or hostile ones give one error and no file outside the cache."""

from __future__ import annotations

import contextlib
import io
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.core.errors import ConfigError, InfraError
from harness.runtimes.aar import AarSource
from tests.unit.runtimes.elf_files import elf_file

LIBRARY = elf_file(needed=["libc.so"], android_api=21, content=b"v2.31.0.250130151446\0")
FILES = {
    "AndroidManifest.xml": b"<manifest/>",
    "jni/arm64-v8a/libQnnHtp.so": LIBRARY,
    "jni/arm64-v8a/libQnnHtpV73Skel.so": LIBRARY,
    "jni/arm64-v8a/readme.txt": b"",
    "jni/x86_64/libQnnHtp.so": b"",
}


def aar(files: dict[str, bytes], *, mode: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return buffer.getvalue()


def source(folder: Path, content: bytes | None, version: str | None = None) -> AarSource:
    path = folder / "qnn-runtime.aar"
    if content is not None:
        path.write_bytes(content)
    return AarSource("aar", path, folder / "cache", version=version)


def test_an_aar_is_a_source(tmp_path: Path) -> None:
    aar_source = source(tmp_path, aar(FILES))
    assert aar_source.versions("linux-arm64") == []
    assert aar_source.versions("android-arm64") == ["2.31.0.250130"]
    runtime = aar_source.runtime("2.31.0.250130", "android-arm64")
    assert [file.path.name for file in runtime.files] == ["libQnnHtp.so", "libQnnHtpV73Skel.so"]
    assert runtime.htp_archs == (73,)
    assert aar_source.damage("2.31.0.250130", "android-arm64") == []
    with pytest.raises(ConfigError, match="only"):
        aar_source.runtime("2.31.0.250130", "linux-x64")


def test_a_version_can_be_given(tmp_path: Path) -> None:
    silent = aar({"jni/arm64-v8a/libQnnHtp.so": b"no library"})
    with pytest.raises(ConfigError, match=r"runtimes\.aar\.version"):
        source(tmp_path, silent).versions("android-arm64")
    assert source(tmp_path, silent, version="2.20.0").versions("android-arm64") == ["2.20.0"]
    with pytest.raises(ConfigError, match=r"runtimes\.aar\.version: '2\.20' is no QNN version"):
        source(tmp_path, silent, version="2.20").versions("android-arm64")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no zip archive"),
        (b"PK", "no zip archive"),
        (aar({"jni/x86_64/libQnnHtp.so": b""}), "no libraries in jni/arm64-v8a"),
        (aar(FILES | {"../evil.so": b""}), "leads elsewhere"),
        (aar(FILES | {"/evil.so": b""}), "absolute"),
        (aar(FILES, mode=0o120777), "a link or device"),
        (aar(FILES | {"jni/arm64-v8a/libBomb.so": bytes(20 << 20)}), "unpacks"),
        (aar(FILES)[:-30], "no zip archive"),
    ],
)
def test_hostile_ones(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(tmp_path, content).versions("android-arm64")
    remaining = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name in remaining if name.endswith(".so")} == set()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"runtimes\.aar\.path: .* is no file"):
        source(tmp_path, None).versions("android-arm64")


@settings(max_examples=60, deadline=5000)
@given(st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), min_size=1, max_size=8))
def test_any_damage_is_survived(flips: list[tuple[int, int]]) -> None:
    content = bytearray(aar(FILES))
    for position, value in flips:
        content[position % len(content)] = value
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with contextlib.suppress(InfraError, ConfigError):
            source(folder, bytes(content)).versions("android-arm64")
        assert {path.name for path in folder.iterdir()} <= {"qnn-runtime.aar", "cache"}
