"""QAIRT trees and plain folders: what they are of, which files they give, what changed there."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from harness.core.errors import ConfigError, InfraError
from harness.core.verified_folder import HashCache
from harness.runtimes.local_sources import (
    FolderSource,
    SdkSource,
    sdk_of_environment,
    target_folder,
)
from harness.runtimes.runtime import short_version
from tests.properties import damaged, reached, reaches
from tests.snapshots import Snapshot
from tests.unit.runtimes.elf_files import elf_file

BUILD = "2.31.0.250130151446"
ANDROID = elf_file(needed=["libc.so"], android_api=21, content=f"v{BUILD}\0".encode())
BOARD = elf_file(needed=["libc.so.6"], content=f"v{BUILD}\0".encode())
HOST = elf_file("x86-64", needed=["libc.so.6"], content=f"v{BUILD}\0".encode())
SKEL = elf_file("hexagon", bits=32, flags=0x73, content=f"v{BUILD}\0".encode())
LIBRARIES = (
    "libQnnHtp.so",
    "libQnnHtpPrepare.so",
    "libQnnHtpV73Stub.so",
    "libQnnHtpV75Stub.so",
    "libQnnSystem.so",
    "libQnnSaver.so",
    "libSNPE.so",
)


def write(path: Path, content: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def make_sdk(
    root: Path, *, yaml: str = "product: qairt\nversion: 2.31.0.250130151446_114721\n"
) -> Path:
    for folder, content in (
        ("aarch64-android", ANDROID),
        ("aarch64-oe-linux-gcc9.3", BOARD),
        ("aarch64-oe-linux-gcc11.2", BOARD),
        ("x86_64-linux-clang", HOST),
    ):
        for name in LIBRARIES:
            write(root / "lib" / folder / name, content)
        for name in ("qnn-net-run", "snpe-net-run"):
            write(root / "bin" / folder / name, content)
    for arch in (73, 75):
        unsigned = root / f"lib/hexagon-v{arch}/unsigned"
        for name in (f"libQnnHtpV{arch}Skel.so", f"libQnnHtpV{arch}.so", "libQnnSystem.so"):
            write(unsigned / name, SKEL)
    write(root / "sdk.yaml", yaml.encode())
    return root


HEADER = '#define QNN_SDK_BUILD_ID "v2.28.2.241116104011_103376"\n'


def version_of(root: Path, yaml: str | None, header: str | None) -> list[str]:
    """The version of a tree with these files."""
    for name, text in (("sdk.yaml", yaml), ("include/QNN/QnnSdkBuildId.h", header)):
        (root / name).unlink(missing_ok=True)
        if text is not None:
            write(root / name, text.encode("utf-8", "surrogatepass"))
    return list(SdkSource("sdk", root, root / "cache")._all)


@pytest.mark.parametrize(
    ("yaml", "header", "expected"),
    [
        ('version: "2.36.1"\n', None, "2.36.1"),
        ("name: x\nversion: v2.36.1 # it\n", None, "2.36.1"),
        (None, HEADER, "2.28.2.241116"),
        ("version: 2.28.2", HEADER, "2.28.2.241116"),
    ],
)
def test_the_version_of_a_tree(
    yaml: str | None, header: str | None, expected: str, tmp_path: Path
) -> None:
    assert version_of(make_sdk(tmp_path), yaml, header) == [expected]
    for silent in ((None, None), ("version: nonsense", "#define X 1")):
        with pytest.raises(ConfigError, match="has no version in"):
            version_of(tmp_path, *silent)


@reaches(0.3)
@given(damaged("version: 2.36.1.250708\n"), damaged(HEADER), damaged("qairt-2.31.0.250130"))
def test_any_text_beside_a_tree_is_survived(yaml: str, header: str, folder: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        write(Path(root) / "lib/aarch64-android/libQnnHtp.so")
        with contextlib.suppress(ConfigError):
            (version,) = version_of(Path(root), yaml, header)
            reached()
            assert any(version in text for text in (yaml, header)), version
    short = short_version(folder)
    assert short is None or short in folder


@pytest.mark.parametrize(
    ("target", "toolchain", "expected"),
    [
        ("android-arm64", None, "aarch64-android"),
        ("linux-arm64", None, "aarch64-oe-linux-gcc11.2"),
        ("linux-arm64", "aarch64-oe-linux-gcc9.3", "aarch64-oe-linux-gcc9.3"),
        ("linux-arm64", "aarch64-oe-linux-gcc8.2", None),
        ("linux-x64", None, "x86_64-linux-clang"),
        ("windows", None, None),
    ],
)
def test_the_folder_of_a_target(target: str, toolchain: str | None, expected: str | None) -> None:
    names = [
        "aarch64-android",
        "aarch64-oe-linux-gcc11.2",
        "aarch64-oe-linux-gcc9.3",
        "aarch64-ubuntu-gcc9.4",
        "hexagon-v73",
        "x86_64-linux-clang",
        "x86_64-windows-msvc",
    ]
    assert target_folder(names, target, toolchain) == expected
    assert target_folder(names[3:], "linux-arm64", None) == "aarch64-ubuntu-gcc9.4"


@pytest.mark.parametrize("target", ["android-arm64", "linux-arm64", "linux-x64"])
def test_a_tree_gives_a_runtime(tmp_path: Path, target: str) -> None:
    source = SdkSource("sdk", make_sdk(tmp_path / "sdk"), tmp_path / "cache")
    assert source.versions(target) == ["2.31.0.250130"]
    runtime = source.runtime("2.31.0.250130", target)
    assert {file.name for file in runtime.files} == {
        *(f"lib/{name}" for name in LIBRARIES if name not in ("libSNPE.so", "libQnnSaver.so")),
        "lib/libQnnHtpV73Skel.so",
        "lib/libQnnHtpV75Skel.so",
    }
    assert runtime.library_dirs == ("lib",)
    assert runtime.htp_archs == (73, 75)
    assert runtime.source == "sdk"
    modes = {file.name: file.mode for file in runtime.files}
    assert modes["lib/libQnnHtp.so"] == 0o644


def test_a_folder_of_trees(tmp_path: Path) -> None:
    for version in ("2.31.0.250130", "2.4.0.230101"):
        make_sdk(tmp_path / f"qairt/{version}", yaml=f"version: {version}\n")
    (tmp_path / "qairt/notes").mkdir()
    source = SdkSource("sdk", tmp_path / "qairt", tmp_path / "cache")
    assert source.versions("linux-x64") == ["2.4.0.230101", "2.31.0.250130"]


@pytest.mark.parametrize("name", ["libQnnHtp.so", "../hexagon-v73/unsigned", ".."])
def test_a_link_out_of_a_tree_is_not_followed(
    tmp_path: Path, name: str, snapshot: Snapshot
) -> None:
    sdk, folder = make_sdk(tmp_path / "sdk"), tmp_path / "mine"
    link = Path(os.path.normpath(sdk / "lib/x86_64-linux-clang" / name))
    target = link.rename(tmp_path / "elsewhere")
    link.symlink_to(target)
    source = SdkSource("sdk", sdk, tmp_path / "cache")
    with snapshot.raises(ConfigError):
        source.runtime("2.31.0.250130", "linux-x64")
    folder.symlink_to(sdk / "lib/x86_64-linux-clang")
    if name == "libQnnHtp.so":
        with snapshot.raises(ConfigError):
            FolderSource("mine", folder, tmp_path / "cache").versions("linux-x64")


def test_links_within_a_tree_are_followed_and_the_tree_may_be_one(tmp_path: Path) -> None:
    sdk = make_sdk(tmp_path / "sdk")
    link = sdk / "lib/x86_64-linux-clang/libQnnHtp.so"
    link.rename(link.with_name("libQnnHtp.so.1"))
    link.symlink_to("libQnnHtp.so.1")
    (tmp_path / "latest").symlink_to("sdk")
    source = SdkSource("sdk", tmp_path / "latest", tmp_path / "cache")
    runtime = source.runtime("2.31.0.250130", "linux-x64")
    assert "lib/libQnnHtp.so" in {file.name for file in runtime.files}


def test_what_is_no_tree_and_no_folder_of_libraries(tmp_path: Path, snapshot: Snapshot) -> None:
    for kind in (SdkSource, FolderSource):
        for path in (tmp_path, tmp_path / "x"):
            with snapshot.raises(ConfigError):
                kind("it", path, tmp_path / "cache").versions("linux-x64")


def test_the_environment_names_a_tree() -> None:
    assert sdk_of_environment({}) is None
    assert sdk_of_environment({"QNN_SDK_ROOT": "/a", "QAIRT_SDK_ROOT": ""}) == (
        "QNN_SDK_ROOT",
        Path("/a"),
    )
    both = {"QNN_SDK_ROOT": "/a", "QAIRT_SDK_ROOT": "/b"}
    assert sdk_of_environment(both) == ("QAIRT_SDK_ROOT", Path("/b"))


@pytest.mark.parametrize(
    ("content", "target"), [(ANDROID, "android-arm64"), (BOARD, "linux-arm64"), (HOST, "linux-x64")]
)
def test_a_folder_is_what_its_libraries_say(tmp_path: Path, content: bytes, target: str) -> None:
    folder = tmp_path / "mine"
    write(folder / "libQnnHtp.so", content)
    write(folder / "libVendor.so.1", content)
    write(folder / "dsp/libQnnHtpV73Skel.so", SKEL)
    write(folder / "notes.txt", b"x")
    source = FolderSource("mine", folder, tmp_path / "cache")
    assert source.versions(target) == ["2.31.0.250130"]
    assert source.versions("windows") == []
    runtime = source.runtime("2.31.0.250130", target)
    assert {file.name for file in runtime.files} == {
        "lib/libQnnHtp.so",
        "lib/libVendor.so.1",
        "lib/dsp/libQnnHtpV73Skel.so",
    }
    assert runtime.library_dirs == ("lib", "lib/dsp")


def test_a_folder_that_does_not_tell(tmp_path: Path, snapshot: Snapshot) -> None:
    folder = tmp_path / "mine"
    write(folder / "libQnnHtp.so", b"no library")
    source = FolderSource("mine", folder, tmp_path / "cache")
    with snapshot.raises(ConfigError):
        source.versions("linux-x64")
    configured = FolderSource(
        "mine", folder, tmp_path / "c", version="2.20.0", target="linux-arm64"
    )
    assert configured.versions("linux-arm64") == ["2.20.0"]


@pytest.mark.parametrize("kept_time", [True, False])
def test_one_flipped_byte_is_found(tmp_path: Path, kept_time: bool) -> None:
    sdk = make_sdk(tmp_path / "sdk")
    source = SdkSource("sdk", sdk, tmp_path / "cache")
    before = source.runtime("2.31.0.250130", "android-arm64")
    assert source.damage("2.31.0.250130", "android-arm64") == []
    library = sdk / "lib/aarch64-android/libQnnHtp.so"
    status = library.stat()
    content = bytearray(library.read_bytes())
    content[-1] ^= 1
    library.write_bytes(content)
    if kept_time:
        os.utime(library, ns=(status.st_atime_ns, status.st_mtime_ns))
    (damage,) = source.damage("2.31.0.250130", "android-arm64")
    assert damage.startswith("lib/libQnnHtp.so ")
    if not kept_time:
        # it is the user's own tree: a library built anew is another runtime, and no damage then
        assert source.runtime("2.31.0.250130", "android-arm64").key != before.key
        assert source.damage("2.31.0.250130", "android-arm64") == []


def test_hashes_are_remembered_and_had_anew_after_damage(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"content")
    files = {"lib.so": library}
    first = HashCache(tmp_path / "cache", tmp_path).hashed(files)
    (ledger,) = (tmp_path / "cache/ledgers").iterdir()
    whole = ledger.read_bytes()
    for rubbish in (b"", b"[]", b'{"files": {"x": {"sha256": "00"}}}', b"\xff"):
        ledger.write_bytes(rubbish)
        assert HashCache(tmp_path / "cache", tmp_path).hashed(files) == first
        assert ledger.read_bytes() == whole
    library.unlink()
    with snapshot.raises(InfraError):
        HashCache(tmp_path / "cache", tmp_path).hashed(files)
