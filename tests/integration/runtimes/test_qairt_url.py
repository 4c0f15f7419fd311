"""Archives of SDKs from a server on loopback: continued, pinned, bounded, unpacked as needed."""

import hashlib
import io
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.core.errors import HarnessError, InfraError, VersionError
from harness.runtimes import download
from harness.runtimes.download import Bounds
from harness.runtimes.qairt_url import QairtUrlSource
from tests.integration.conftest import RuntimeFor
from tests.integration.device_runs import DeviceRuns
from tests.integration.forked import ROOT
from tests.integration.runtimes.maven_server import MavenServer
from tests.integration.runtimes.real_layouts import qairt_tree
from tests.integration.terminal import Terminal
from tests.logged import Logged
from tests.unit.core.test_archive import info, zipped
from tests.unit.runtimes.elf_files import elf_file

VERSION = "2.44.0.260225"
NAME = f"{VERSION}/v{VERSION}.zip"
ANDROID = "android-arm64"
TREE = f"qairt/{VERSION}"


def sdk_zip(build: str = f"{VERSION}115937", *more: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    """As Qualcomm's: a tree with much that no device needs. It has 2 MB."""
    library = elf_file(content=f"v{build}\0".encode() + os.urandom(200_000))
    skel = elf_file("hexagon", bits=32, flags=0x73)
    files: list[tuple[zipfile.ZipInfo | str, bytes]] = [
        (f"{TREE}/lib/", b""),
        (f"{TREE}/sdk.yaml", f"version: {build.split('_')[0]}\n".encode()),
        (f"{TREE}/bin/aarch64-android/qnn-net-run", os.urandom(1_200_000)),
        (info(f"{TREE}/share/link", kind=stat.S_IFLNK), b"../lib"),
        (f"{TREE}/share/zeros", bytes(20 << 20)),
        (f"{TREE}/include/QNN/QnnInterface.h", b"#pragma once\n"),
        *((f"{TREE}/lib/aarch64-android/{name}", library) for name in LIBRARIES),
        (f"{TREE}/lib/aarch64-android/libGenie.so", library),
        (f"{TREE}/lib/aarch64-oe-linux-gcc11.2/libQnnHtp.so", library),
        (f"{TREE}/lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so", skel),
        (f"{TREE}/lib/hexagon-v73/unsigned/libQnnHtpV73.so", skel),
        (f"{TREE}/lib/hexagon-v75/unsigned/libQnnHtpV75Skel.so", skel),
    ]
    return zipped(*files, *more)


LIBRARIES = ("libQnnHtp.so", "libQnnHtpV73Stub.so", "libQnnSystem.so")
GOOD = sdk_zip()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenServer]:
    monkeypatch.setattr(download, "_PAUSE_S", 0.01)
    started = MavenServer()
    started.files[NAME], started.etag = GOOD, '"1"'
    yield started
    started.stop()


def url_of(server: MavenServer) -> str:
    return f"{server.url}/{{version}}/v{{version}}.zip"


def opened(server: MavenServer, cache: Path, **sha256: str) -> QairtUrlSource:
    return QairtUrlSource("qairt", url_of(server), cache, sha256=sha256)


def broken_off(source: QairtUrlSource, words: str, name: str, value: object) -> None:
    """Fetches with something of `download` replaced."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"harness.runtimes.{name}", value)
        with pytest.raises(InfraError, match=words):
            source.runtime(VERSION, ANDROID)


def test_a_version_is_fetched_once_and_only_what_devices_need_is_unpacked(
    server: MavenServer, tmp_path: Path, logged: Logged
) -> None:
    source = opened(server, tmp_path)
    assert (source.versions(ANDROID), source.is_cached(VERSION, ANDROID)) == ([], False)
    runtime = source.runtime(VERSION, ANDROID)
    skels = [f"lib/libQnnHtpV{arch}Skel.so" for arch in (73, 75)]
    assert {file.name for file in runtime.files} == {*(f"lib/{n}" for n in LIBRARIES), *skels}
    assert (runtime.name, runtime.htp_archs) == (f"qairt:{VERSION}", (73, 75))
    unpacked = {path.name for path in runtime.root.rglob("*") if path.is_file()}
    assert unpacked == {"sdk.yaml", *(file.path.name for file in runtime.files)}
    server.stop()
    again = opened(server, tmp_path)
    assert again.runtime(VERSION, ANDROID) == runtime
    assert len(again.runtime(VERSION, "linux-arm64").files) == 3
    assert (again.versions(ANDROID), again.is_cached(VERSION, ANDROID)) == ([VERSION], True)
    with pytest.raises(VersionError, match="no libraries for linux-x64"):
        again.runtime(VERSION, "linux-x64")
    assert again.versions("linux-x64") == []
    library = runtime.library("libQnnHtp.so")
    library.write_bytes(library.read_bytes()[:-1] + b"?")
    assert "libQnnHtp.so has sha256" in again.damage(VERSION, ANDROID)[0]
    assert again.runtime(VERSION, ANDROID).files == runtime.files
    assert again.damage(VERSION, ANDROID) == []
    assert server.ranges == [""]
    assert len(logged.warnings) == 1


Meanwhile = Callable[[MavenServer, Path], object]


def changed(server: MavenServer, *, obliging: bool = False) -> None:
    server.files[NAME], server.etag, server.obliging = sdk_zip(), '"2"', obliging


def cut_again(server: MavenServer, _: Path) -> None:
    server.cuts[NAME] = [300_000]


@pytest.mark.parametrize(
    ("meanwhile", "asked"),
    [
        (lambda server, part: None, ["bytes=700000-"]),
        (lambda server, part: changed(server), ["bytes=700000-"]),
        (lambda server, part: changed(server, obliging=True), ["bytes=700000-", ""]),
        (lambda server, part: part.write_bytes(GOOD), [f"bytes={len(GOOD)}-", ""]),
        (lambda server, part: part.with_name(f"{part.name}.json").write_text("{"), [""]),
        (cut_again, ["bytes=700000-", "bytes=1000000-"]),
        (lambda server, part: setattr(server, "claimed", 0), ["bytes=700000-"]),
        (lambda server, part: server.pages.append(b"<html>"), ["bytes=700000-"] * 2),
    ],
)
def test_what_broke_off_is_continued_if_it_is_the_same(
    meanwhile: Meanwhile, asked: list[str], server: MavenServer, tmp_path: Path
) -> None:
    server.cuts[NAME] = [700_000]
    source = opened(server, tmp_path)
    broken_off(source, "was lost", "download._TRIES", 1)
    (part,) = tmp_path.rglob("*.part")
    assert part.stat().st_size == 700_000
    assert not source.is_cached(VERSION, ANDROID)
    meanwhile(server, part)
    assert source.runtime(VERSION, ANDROID).files
    (archive,) = tmp_path.rglob("*.zip")
    assert archive.read_bytes() == server.files[NAME]
    assert server.ranges[1:] == asked
    assert not [*tmp_path.rglob("*.part*")]


def test_without_a_strong_validator_it_begins_anew(server: MavenServer, tmp_path: Path) -> None:
    server.etag, server.cuts[NAME] = 'W/"1"', [700_000]
    opened(server, tmp_path).runtime(VERSION, ANDROID)
    assert server.ranges == ["", ""]


def sends(content: bytes) -> Callable[[MavenServer], object]:
    return lambda server: server.files.update({NAME: content})


def adds(content: bytes, kind: int = stat.S_IFREG) -> Callable[[MavenServer], object]:
    member = info(f"{TREE}/lib/aarch64-android/libQnnGpu.so", kind=kind)
    return sends(sdk_zip(f"{VERSION}115937", (member, content)))


def cuts_without_length(server: MavenServer) -> None:
    server.claimed, server.cuts[NAME] = 0, [900_000]


@pytest.mark.parametrize(
    ("refuses", "words"),
    [
        (lambda server: server.files.pop(NAME), f"there is no qairt:{VERSION}: .*404"),
        (lambda server: server.status.update({NAME: 403}), "403"),
        (lambda server: server.status.update({NAME: 503}), "503"),
        (lambda server: setattr(server, "claimed", 9 << 30), "limit of 8589934592 bytes"),
        (cuts_without_length, "it is truncated"),
        (sends(b"<html>"), "not a zip archive"),
        (sends(zipped(("a", b""))), "no lib/aarch64-android"),
        (sends(GOOD.replace(GOOD[1_500_000:1_500_008], bytes(8))), "CRC-32"),
        (sends(GOOD.replace(TREE.encode(), b"../" + 16 * b"x")), r"'\.\./x+/.*' has a name with"),
        (sends(sdk_zip("2.45.0.260301")), f"QAIRT 2.45.0.260301 under the name of {VERSION}"),
        (sends(zipped((f"{TREE}/lib/aarch64-android/libQnnHtp.so", b""))), "an unknown version"),
        (adds(bytes(20 << 20)), "expands 20387 bytes to"),
        (adds(b"/etc/passwd", stat.S_IFLNK), "is a link"),
    ],
)
def test_refusals_leave_nothing_pinned(
    refuses: Callable[[MavenServer], object], words: str, server: MavenServer, tmp_path: Path
) -> None:
    refuses(server)
    with pytest.raises(HarnessError, match=words):
        opened(server, tmp_path).runtime(VERSION, ANDROID)
    server.files[NAME], server.claimed = GOOD, None
    server.status.clear()
    assert opened(server, tmp_path).runtime(VERSION, ANDROID).files


def test_a_hash_is_pinned_at_first_use_unless_devices_yaml_has_it(
    server: MavenServer, tmp_path: Path
) -> None:
    changed_zip = sdk_zip()
    good, other = (hashlib.sha256(content).hexdigest() for content in (GOOD, changed_zip))
    with pytest.raises(InfraError, match=f"sha256 {good}, expected {other};"):
        opened(server, tmp_path, **{VERSION: other}).runtime(VERSION, ANDROID)
    opened(server, tmp_path).runtime(VERSION, ANDROID)
    (archive,) = tmp_path.rglob("*.zip")
    archive.unlink()
    server.files[NAME] = changed_zip
    with pytest.raises(InfraError, match=f"sha256 {other}, expected {good} as in .*zip.json"):
        opened(server, tmp_path).runtime(VERSION, ANDROID)
    source = opened(server, tmp_path, **{VERSION: other})
    assert source.versions(ANDROID) == [VERSION]
    assert source.runtime(VERSION, ANDROID).files


def test_a_full_disk_says_what_is_needed_and_free(
    server: MavenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    free = iter([1_000_000, *4 * [10_000_000], 100_000])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=next(free, 10**9)))
    source = opened(server, tmp_path)
    for text in (r"needs 2\.\d MB on the disk of .* has 1\.0 MB free", r"needs .* 0\.1 MB free"):
        with pytest.raises(InfraError, match=text):
            source.runtime(VERSION, ANDROID)
    assert source.runtime(VERSION, ANDROID).files
    assert server.ranges[-1].startswith("bytes=")


def test_a_slow_server_is_left_and_continued(server: MavenServer, tmp_path: Path) -> None:
    server.pace_s = 0.1
    source = opened(server, tmp_path)
    broken_off(source, r"within 0\.5 s", "qairt_url.BOUNDS", Bounds(8 << 30, 0.5))
    server.pace_s = 0.0
    assert source.runtime(VERSION, ANDROID).files
    assert server.ranges[-1].startswith("bytes=")


@pytest.fixture
def fetch(server: MavenServer, tmp_path: Path) -> list[str]:
    """A command that fetches a version, with `tmp_path` as its folder and its cache in there."""
    (tmp_path / "devices.yaml").write_text(
        "schema: 1\ndevices: [{name: x, serial: x, target: android-arm64}]\n"
        f"runtimes: [{{kind: qairt-url, url: '{url_of(server)}'}}]\n"
    )
    words = ["-m", "harness.cli.main", "runtimes", "fetch", f"qairt:{VERSION}"]
    return [sys.executable, *words, "--target", ANDROID]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "QNN_HARNESS_CACHE": "cache"}


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    out = err = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, text=True, stdout=out, stderr=err)


@pytest.mark.slow
def test_whatever_ends_a_command_the_next_one_continues_and_two_at_once_fetch_it_once(
    server: MavenServer, tmp_path: Path, fetch: list[str]
) -> None:
    server.pace_s = 0.2
    with Terminal(fetch, cwd=tmp_path, env=ENVIRONMENT) as terminal:
        terminal.wait_for(f"downloading v{VERSION}.zip  0.")
        terminal.send("\x03")
        assert terminal.finish() == 130
    with Terminal(fetch, cwd=tmp_path, env=ENVIRONMENT) as terminal:
        terminal.wait_for(f"downloading v{VERSION}.zip  1.")
        terminal.process.kill()
    server.pace_s = 0.02
    both = [started(fetch, tmp_path) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert out.startswith(f"qairt:{VERSION} {ANDROID}: 5 files, "), err
        assert "MB" not in err
    assert len(server.ranges) == 3
    assert all(span.startswith("bytes=") for span in server.ranges[1:])
    listed, _ = started([*fetch[:4], "list"], tmp_path).communicate(timeout=60)
    assert f"qairt:{VERSION}      android-arm64  qairt        yes\n" in listed
    assert f"qairt: any version of {server.url}/" in listed


@pytest.mark.slow
def test_real_libraries_of_an_archive_run(
    lab: DeviceRuns, runtime_for: RuntimeFor, server: MavenServer, user_cache: Path
) -> None:
    version, buffer = "2.51.0.260929", io.BytesIO()
    tree = qairt_tree(lab.folder / "tree", runtime_for("2.51.0"))
    (tree / "sdk.yaml").write_text(f"version: {version}\n")
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in tree.rglob("*"):
            archive.write(path, f"qairt/{version}/{path.relative_to(tree)}")
    server.files[f"{version}/v{version}.zip"] = buffer.getvalue()
    url = url_of(server)
    lab.file.write_text(f"{lab.file.read_text()}runtimes:\n  - {{kind: qairt-url, url: '{url}'}}\n")
    name = f"qairt:{version}"
    try:
        case = ("-k", "context_count and tiny and resident-3")
        finished = lab.run("--qnn", name, *case, code=0)
        (record,) = finished.cases
        assert f"sim-v73-htp-{name}" in record["case"]
        assert (record["outcome"], record["runtime"]["source"]) == ("passed", "qairt")
        assert record["runtime"]["build_id"].startswith("2.51.0.260929")
        server.stop()
        for words in (["runtimes", "verify", name], ["runtimes", "show", "qairt:latest"]):
            assert name in lab.qnn_harness(*words, code=0).stdout
        doctor = lab.qnn_harness("doctor", "--qnn", name, "--no-smoke").stdout
        assert f"QNN {name} for linux-x64" in " ".join(doctor.split())
    finally:
        shutil.rmtree(QairtUrlSource("qairt", url, user_cache)._root, ignore_errors=True)
