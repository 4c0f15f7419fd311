"""AARs from a Maven repository on loopback: checked, tried again, never half there."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, InfraError
from harness.runtimes.aar import MavenSource
from harness.runtimes.maven_repository import Coordinates
from tests.integration.runtimes.maven_server import MavenServer, make_aar
from tests.logged import Logged
from tests.unit.runtimes.elf_files import elf_file

QNN = Coordinates.parse("com.qualcomm.qti:qnn-runtime")
TARGET = "android-arm64"


def library(version: str) -> bytes:
    build = f"v{version}.250130151446\0".encode()
    return elf_file(needed=["libc.so"], android_api=21, content=build + bytes(range(256)) * 2000)


def qnn_aar(version: str) -> bytes:
    names = ("libQnnHtp.so", "libQnnHtpV73Stub.so", "libQnnHtpV73Skel.so", "libQnnSystem.so")
    return make_aar({name: library(version) + name.encode() for name in names})


@pytest.fixture
def server() -> Iterator[MavenServer]:
    started = MavenServer()
    started.add(QNN.with_version("2.9.0"), qnn_aar("2.9.0"), sums=False)
    started.add(QNN.with_version("2.31.0"), qnn_aar("2.31.0"))
    yield started
    started.stop()


def opened(server: MavenServer, cache: Path) -> MavenSource:
    return MavenSource("maven", QNN, server.url, cache)


def files_below(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and ".locks" not in path.parts
    }


def test_an_artifact_is_a_source(server: MavenServer, tmp_path: Path, logged: Logged) -> None:
    source = opened(server, tmp_path)
    assert source.versions(TARGET) == ["2.9.0", "2.31.0"]
    assert source.versions("linux-x64") == []
    assert not source.is_cached("2.31.0", TARGET)
    runtime = source.runtime("2.31.0", TARGET)
    assert runtime.library_dirs == ("jni/arm64-v8a",)
    assert [file.name for file in runtime.files] == [
        "jni/arm64-v8a/libQnnHtp.so",
        "jni/arm64-v8a/libQnnHtpV73Skel.so",
        "jni/arm64-v8a/libQnnHtpV73Stub.so",
        "jni/arm64-v8a/libQnnSystem.so",
    ]
    assert source.is_cached("2.31.0", TARGET)
    server.stop()
    again = opened(server, tmp_path)
    assert again.runtime("2.31.0", TARGET) == runtime
    assert logged.warnings, "its list is that of the last time"


def test_what_breaks_off_each_time_leaves_nothing(
    server: MavenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.runtimes.download._PAUSE_S", 0.01)
    server.cuts[QNN.with_version("2.31.0").aar()] = [700_000, 0, 0]
    with pytest.raises(InfraError, match="was lost"):
        opened(server, tmp_path).runtime("2.31.0", TARGET)
    assert not any(path.endswith(".aar") or "part" in path for path in files_below(tmp_path))
    opened(server, tmp_path).runtime("2.31.0", TARGET)


def test_a_wrong_checksum_leaves_nothing(server: MavenServer, tmp_path: Path) -> None:
    name = QNN.with_version("2.31.0").aar()
    server.files[f"{name}.sha256"] = b"0" * 64
    with pytest.raises(InfraError, match=r"0{64}"):
        opened(server, tmp_path).runtime("2.31.0", TARGET)
    assert not any(path.endswith((".aar", "part")) for path in files_below(tmp_path))


@pytest.mark.parametrize("status", [404, 403, 500])
def test_refusals(
    server: MavenServer, tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.runtimes.download._PAUSE_S", 0.01)
    server.status[f"{QNN.folder}/maven-metadata.xml"] = status
    error = ConfigError if status == 404 else InfraError
    with pytest.raises(error, match=str(status)):
        opened(server, tmp_path).versions(TARGET)


def test_one_flipped_byte_is_found_and_repaired(
    server: MavenServer, tmp_path: Path, logged: Logged
) -> None:
    source = opened(server, tmp_path)
    runtime = source.runtime("2.31.0", TARGET)
    assert source.damage("2.31.0", TARGET) == []
    unpacked = runtime.library("libQnnHtp.so")
    (aar,) = tmp_path.rglob("*.aar")
    for path in (unpacked, aar):
        good = path.read_bytes()
        path.write_bytes(good[:-5] + bytes([good[-5] ^ 1]) + good[-4:])
        (damage,) = opened(server, tmp_path).damage("2.31.0", TARGET)
        assert path.name in damage
        assert opened(server, tmp_path).runtime("2.31.0", TARGET).files == runtime.files
        assert path.read_bytes() == good
    assert len(logged.warnings) == 2


def test_a_repository_that_is_a_folder(server: MavenServer, tmp_path: Path) -> None:
    root = tmp_path / "m2"
    for name, content in server.files.items():
        if not name.endswith("maven-metadata.xml"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
    source = MavenSource("m2", QNN, root, tmp_path / "cache")
    assert source.versions(TARGET) == ["2.9.0", "2.31.0"]
    assert source.runtime("2.31.0", TARGET).source == "m2"
    assert source.damage("2.31.0", TARGET) == []
    aar = root / QNN.with_version("2.31.0").aar()
    aar.unlink()
    aar.symlink_to("/etc/passwd")
    with pytest.raises(InfraError, match="link"):
        source.runtime("2.31.0", TARGET)
    nobody = Coordinates.parse("a:b")
    with pytest.raises(ConfigError, match="a:b"):
        MavenSource("m2", nobody, root, tmp_path / "cache").versions(TARGET)


def test_user_and_password_are_sent_and_not_told(
    server: MavenServer, tmp_path: Path, logged: Logged
) -> None:
    server.login = "Basic " + base64.b64encode(b"me:s3/cr@t").decode()
    server.reason = "No\x1b]0;x\x07"
    cache = tmp_path / "cache"

    def with_password(password: str) -> MavenSource:
        url = server.url.replace("://", f"://me:{password}@")
        return MavenSource("far", QNN, url, cache)

    with pytest.raises(InfraError, match=r"401 No\\x1b\]0;x\\x07") as refused:
        with_password("wr0ng").versions(TARGET)
    source = with_password("s3%2Fcr%40t")
    assert source.versions(TARGET) == ["2.9.0", "2.31.0"]
    assert source.runtime("2.9.0", TARGET).files
    texts = [str(refused.value), source.origin, *logged.warnings]
    texts += [path.read_text("latin-1") for path in cache.rglob("*") if path.is_file()]
    assert not [text for text in texts if "wr0ng" in text or "cr%40t" in text or "cr@t" in text]
    assert "***@127.0.0.1" in source.origin
