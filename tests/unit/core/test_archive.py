"""Archives that lie, break off or explode are refused, and nothing is written outside."""

import hashlib
import io
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.core.archive import ArchiveLimits, names_of, unpack
from harness.core.errors import InfraError
from tests.properties import reached, reaches

CONTENT = b"libraries " * 500


def info(
    name: str, *, kind: int = stat.S_IFREG, method: int = zipfile.ZIP_DEFLATED
) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.external_attr = (kind | 0o644) << 16
    member.compress_type = method
    return member


def zipped(*members: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def renamed(archive: bytes, old: bytes, new: bytes) -> bytes:
    """Writes a name that zipfile itself would not write."""
    assert len(old) == len(new)
    assert archive.count(old) == 2
    return archive.replace(old, new)


def patched(archive: bytes, offset_in_entry: int, value: bytes) -> bytes:
    """Changes a field of the first entry of the directory."""
    offset = archive.index(b"PK\x01\x02") + offset_in_entry
    return archive[:offset] + value + archive[offset + len(value) :]


def overlapping() -> bytes:
    """Two directory entries for one and the same packed member."""
    archive = zipped(("a", CONTENT), ("b", CONTENT))
    second = archive.index(b"PK\x01\x02", archive.index(b"PK\x01\x02") + 4)
    return archive[: second + 42] + struct.pack("<I", 0) + archive[second + 46 :]


def with_zip64_locator() -> bytes:
    archive = zipped(("a", CONTENT))
    end = archive.rindex(b"PK\x05\x06")
    return archive[:end] + b"PK\x06\x07" + bytes(16) + archive[end:]


BAD: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "no zip": lambda: b"#!/bin/sh\n" * 100,
    "cut off": lambda: zipped(("a", CONTENT))[:-30],
    "beginning cut off": lambda: zipped(("a", CONTENT))[40:],
    "absolute": lambda: zipped(("/tmp/x", b"")),
    "parent": lambda: zipped(("a/../../x", b"")),
    "double slash": lambda: zipped(("a//x", b"")),
    "backslash": lambda: renamed(zipped(("a-x", b"")), b"a-x", b"a\\x"),
    "drive": lambda: zipped(("C:/x", b"")),
    "control character": lambda: zipped(("a\nb", b"")),
    "nul": lambda: renamed(zipped(("a-b.so", b"")), b"a-b.so", b"a\0b.so"),
    "right to left": lambda: zipped(("a\u202egnp.so", b"")),
    "long name": lambda: zipped(("x" * 300, b"")),
    "long path": lambda: zipped(("/".join(["x" * 200] * 8), b"")),
    "link": lambda: zipped((info("a", kind=stat.S_IFLNK), b"/etc/passwd")),
    "duplicate": lambda: zipped(("same", b"1"), ("same", b"2")),
    "composed twice": lambda: zipped(("\u00e9", b"1"), ("e\u0301", b"2")),
    "file and folder": lambda: zipped(("a", b"1"), ("a/b", b"2")),
    "folder by mode": lambda: zipped((info("a", kind=stat.S_IFDIR), b"")),
    "encrypted": lambda: patched(zipped(("a", CONTENT)), 8, b"\1\0"),
    "unknown method": lambda: patched(zipped(("a", CONTENT)), 10, b"\x63\0"),
    "bzip2": lambda: zipped((info("a", method=zipfile.ZIP_BZIP2), CONTENT)),
    "wrong checksum": lambda: patched(zipped(("a", CONTENT)), 16, b"\1\2\3\4"),
    "claims more": lambda: patched(zipped(("a", CONTENT)), 24, struct.pack("<I", 6000)),
    "claims less": lambda: patched(zipped(("a", CONTENT)), 24, struct.pack("<I", 10)),
    "bomb": lambda: zipped(("a", bytes(20 << 20))),
    "overlap": overlapping,
    "zip64": with_zip64_locator,
    "damaged deflate": lambda: zipped(("a", CONTENT)).replace(b"\x4b", b"\xff", 1),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_archive_is_refused(name: str, tmp_path: Path) -> None:
    archive = tmp_path / "bad.whl"
    archive.write_bytes(BAD[name]())
    folder = tmp_path / "inner/unpacked"
    folder.mkdir(parents=True)
    with pytest.raises(InfraError, match=r"bad\.whl"):
        unpack(archive, folder, lambda _: True)
    assert {*tmp_path.rglob("*")} <= {archive, folder.parent, folder, folder / "a"}


def test_what_is_wanted_comes_out(tmp_path: Path) -> None:
    archive = tmp_path / "good.whl"
    archive.write_bytes(
        zipped(("p/", b""), ("p/lib.so", CONTENT), ("p/d/é.txt", b"x"), ("p/left", b"y"))
    )
    (tmp_path / "out").mkdir()
    hashes = unpack(archive, tmp_path / "out", lambda name: name != "p/left")
    assert list(hashes) == ["p/lib.so", "p/d/é.txt"]
    assert hashes["p/lib.so"] == hashlib.sha256(CONTENT).hexdigest()
    assert (tmp_path / "out/p/lib.so").read_bytes() == CONTENT
    assert not (tmp_path / "out/p/left").exists()
    assert names_of(archive) == ["p/lib.so", "p/d/é.txt", "p/left"]


@pytest.mark.parametrize(
    "limits",
    [
        ArchiveLimits(members=1),
        ArchiveLimits(directory_bytes=50),
        ArchiveLimits(archive_bytes=50),
        ArchiveLimits(total_bytes=len(CONTENT)),
    ],
    ids=str,
)
def test_limits(limits: ArchiveLimits, tmp_path: Path) -> None:
    archive = tmp_path / "big.whl"
    archive.write_bytes(zipped(("a", CONTENT), ("b", CONTENT)))
    assert len(names_of(archive)) == 2
    with pytest.raises(InfraError):
        unpack(archive, tmp_path, lambda _: True, limits)


GOOD = zipped(("pkg/lib.so", CONTENT), ("pkg/text", b"text"), ("pkg.libs/c++.so", b"\x7fELF" * 40))


def changed(changes: list[tuple[int, int]], end: int) -> bytes:
    content = bytearray(GOOD)
    for offset, value in changes:
        content[offset] = value
    return bytes(content[:end])


CHANGED = st.builds(
    changed,
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=6),
    st.just(len(GOOD)) | st.just(len(GOOD)) | st.integers(0, len(GOOD)),
)
NAMED = st.builds(
    lambda names, kind: zipped(*((info(name, kind=kind), b"content") for name in names)),
    st.lists(st.text("ab/.\\\0:é\n", min_size=1) | st.text("abé/", min_size=1), max_size=4),
    st.sampled_from([0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO]),
)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@reaches(0.02)
@settings(max_examples=200, deadline=2000)
@given(CHANGED | NAMED)
def test_any_archive_gives_what_was_in_it_inside_of_its_folder_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    outer = tmp_path_factory.mktemp("fuzz")
    archive, folder = outer / "fuzzed.whl", outer / "in/out"
    archive.write_bytes(content)
    folder.mkdir(parents=True)
    try:
        hashes = unpack(archive, folder, lambda _: True)
    except InfraError:
        pass
    else:
        for name, sha256 in hashes.items():
            reached()
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256
    assert {path.name for path in outer.iterdir()} == {"fuzzed.whl", "in"}
    assert {path.name for path in (outer / "in").iterdir()} == {"out"}
    assert not any(path.is_symlink() for path in folder.rglob("*"))
