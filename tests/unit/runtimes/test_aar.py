"""AARs give runtimes, and hostile ones one error and no file elsewhere; what Maven says of them."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.runtimes.aar import AarSource
from harness.runtimes.maven_repository import Coordinates, metadata_versions
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.core.test_archive import zipped
from tests.unit.runtimes.elf_files import elf_file

LIBRARY = elf_file(needed=["libc.so"], android_api=21, content=b"v2.31.0.250130151446\0")
FILES = {
    "AndroidManifest.xml": b"<manifest/>",
    "jni/arm64-v8a/libQnnHtp.so": LIBRARY,
    "jni/arm64-v8a/libQnnHtpV73Skel.so": LIBRARY,
    "jni/arm64-v8a/readme.txt": b"",
    "jni/x86_64/libQnnHtp.so": b"",
}


def source(folder: Path, content: bytes | None, version: str | None = None) -> AarSource:
    path = folder / "qnn-runtime.aar"
    if content is not None:
        path.write_bytes(content)
    return AarSource("aar", path, folder / "cache", version=version)


def test_an_aar_is_a_source(tmp_path: Path, snapshot: Snapshot) -> None:
    aar_source = source(tmp_path, zipped(*FILES.items()))
    assert aar_source.versions("linux-arm64") == []
    assert aar_source.versions("android-arm64") == ["2.31.0.250130"]
    runtime = aar_source.runtime("2.31.0.250130", "android-arm64")
    assert [file.path.name for file in runtime.files] == ["libQnnHtp.so", "libQnnHtpV73Skel.so"]
    assert runtime.htp_archs == (73,)
    assert aar_source.damage("2.31.0.250130", "android-arm64") == []
    with snapshot.raises(ConfigError):
        aar_source.runtime("2.31.0.250130", "linux-x64")


def test_a_version_can_be_given(tmp_path: Path, snapshot: Snapshot) -> None:
    silent = zipped(("jni/arm64-v8a/libQnnHtp.so", b"no library"))
    with snapshot.raises(ConfigError):
        source(tmp_path, silent).versions("android-arm64")
    assert source(tmp_path, silent, version="2.20.0").versions("android-arm64") == ["2.20.0"]
    with snapshot.raises(ConfigError):
        source(tmp_path, silent, version="2.20").versions("android-arm64")


HOSTILE = (
    b"PK",
    zipped(("jni/x86_64/libQnnHtp.so", b"")),
    zipped(*FILES.items(), ("../evil.so", b"")),
    None,
)


def test_hostile_ones(tmp_path: Path, snapshot: Snapshot) -> None:
    texts = []
    for content in HOSTILE:
        with pytest.raises(ConfigError) as refused:
            source(tmp_path, content).versions("android-arm64")
        texts.append(str(refused.value))
        assert not [*tmp_path.rglob("*.so")]
        (tmp_path / "qnn-runtime.aar").unlink(missing_ok=True)
    assert texts == snapshot


METADATA = b"""<?xml version="1.0" encoding="UTF-8"?>
<!-- made by hand -->
<metadata><groupId>com.qualcomm.qti</groupId><artifactId>qnn-runtime</artifactId>
<versioning><latest>2.49.0</latest><versions><version>2.34.0</version><version>2.49.0</version>
<version>../../etc</version><version>2.49.0</version></versions></versioning></metadata>
"""

BOMB = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>
<metadata><versioning><versions><version>&b;</version></versions></versioning></metadata>"""


def test_coordinates() -> None:
    coordinates = Coordinates.parse("com.qualcomm.qti:qnn-runtime:2.49.0")
    assert coordinates.folder == "com/qualcomm/qti/qnn-runtime"
    assert coordinates.aar() == "com/qualcomm/qti/qnn-runtime/2.49.0/qnn-runtime-2.49.0.aar"
    assert str(coordinates) == "com.qualcomm.qti:qnn-runtime:2.49.0"
    assert Coordinates.parse("a:b").version is None


def test_what_are_no_coordinates() -> None:
    parts = ("", "a", "a:", "a:b:c:d", "a/b:c", "a:..", "a:b:..", "a:b:1/../2", ".a:b", "a:b c")
    for text in (*parts, "a.:b", "a.-b:c"):
        with pytest.raises(ConfigError, match="group:artifact"):
            Coordinates.parse(text)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"<a>", BOMB, b"\xff\xfe", METADATA[:-9]])
def test_versions_of_a_list_and_of_damaged_ones(content: bytes) -> None:
    assert metadata_versions(METADATA) == ["2.34.0", "2.49.0"]
    with pytest.raises(ValueError):
        metadata_versions(content)


@reaches(0.01)
@given(st.binary(max_size=200), st.integers(0, len(METADATA)))
def test_any_bytes_are_survived(noise: bytes, position: int) -> None:
    try:
        parsed = metadata_versions(METADATA[:position] + noise + METADATA[position + len(noise) :])
    except ValueError:
        return
    reached()
    assert len(parsed) <= 9
