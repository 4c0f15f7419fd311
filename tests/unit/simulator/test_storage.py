"""Access to the storage folder, and its limit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.simulator.storage import Storage, df, used_bytes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A storage folder beside a folder that must not be reached."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    (tmp_path / "storage-2").mkdir()
    storage = tmp_path / "storage"
    (storage / "dev/incoming").mkdir(parents=True)
    (storage / "data").mkdir()
    (storage / "data/file").write_text("content")
    (storage / "data/link").symlink_to("file")
    (storage / "data/out").symlink_to(tmp_path / "outside")
    (storage / "data/loop").symlink_to("loop")
    return storage


def put(storage: Storage, path: str, content: bytes, mode: int = 0o644) -> None:
    upload = storage.upload(path, mode)
    try:
        upload.write(memoryview(content))
        upload.commit(1000)
    finally:
        upload.abort()


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "{root}/../outside/secret",
        "{root}/data/out/secret",
        "{root}/data/out/new",
        "{root}-2",
        "..",
        "../outside/secret",
        "data/../../outside/secret",
        "/",
        "{root}/data/out/../secret",
    ],
)
def test_paths_outside(root: Path, path: str) -> None:
    storage = Storage(root)
    full = path.format(root=root)
    for reach in (storage.resolve, storage.resolve_entry, storage.open_for_reading):
        with pytest.raises(PermissionError):
            reach(full)
    with pytest.raises(PermissionError):
        storage.upload(full, 0o644)


@pytest.mark.parametrize(
    ("path", "real", "entry"),
    [
        ("{root}", "", ""),
        ("{root}/data/file", "data/file", "data/file"),
        ("{root}/data/link", "data/file", "data/link"),
        ("{root}/data/link/", "data/file", "data/link"),
        ("{root}//data/./../data/new", "data/new", "data/new"),
        ("data/file", "data/file", "data/file"),
        ("", "", ""),
        ("data/..", "", ""),
    ],
)
def test_paths_inside(root: Path, path: str, real: str, entry: str) -> None:
    storage, full = Storage(root), path.format(root=root)
    assert Path(storage.resolve(full)) == root / real
    assert Path(storage.resolve_entry(full)) == root / entry


def test_the_link_itself_can_be_seen_and_replaced(root: Path) -> None:
    storage = Storage(root)
    assert storage.resolve_entry(f"{root}/data/out") == f"{root}/data/out"
    put(storage, f"{root}/data/out", b"a file now")
    assert (root / "data/out").read_bytes() == b"a file now"
    assert (root.parent / "outside/secret").read_text() == "secret"


def test_a_file_appears_whole(root: Path) -> None:
    storage = Storage(root)
    upload = storage.upload(f"{root}/data/a/b/new", 0o100751)
    upload.write(memoryview(b"one"))
    assert not (root / "data/a/b/new").exists()
    upload.write(memoryview(b"two"))
    upload.commit(1234567890)
    upload.abort()
    status = (root / "data/a/b/new").stat()
    assert (root / "data/a/b/new").read_bytes() == b"onetwo"
    assert (status.st_mode & 0o7777, status.st_mtime) == (0o751, 1234567890)
    assert not list((root / "dev/incoming").iterdir())


def test_a_file_given_up_leaves_nothing(root: Path) -> None:
    storage = Storage(root)
    upload = storage.upload(f"{root}/data/file", 0o644)
    upload.write(memoryview(b"half"))
    upload.abort()
    assert (root / "data/file").read_text() == "content"
    assert not list((root / "dev/incoming").iterdir())


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("data", errno.EISDIR),
        ("data/file/below", errno.ENOTDIR),
        ("data/" + "x" * 300, errno.ENAMETOOLONG),
    ],
)
def test_where_no_file_can_be(root: Path, path: str, number: int) -> None:
    with pytest.raises(OSError) as failure:
        put(Storage(root), f"{root}/{path}", b"x")
    assert failure.value.errno == number
    assert not list((root / "dev/incoming").iterdir())


def test_reading(root: Path) -> None:
    storage = Storage(root)
    fd = storage.open_for_reading(f"{root}/data/link")
    assert os.read(fd, 100) == b"content"
    os.close(fd)
    os.mkfifo(root / "data/fifo")
    for name, number in [
        ("data", errno.EISDIR),
        ("data/fifo", errno.EACCES),
        ("data/none", errno.ENOENT),
        ("data/loop", errno.ELOOP),
    ]:
        with pytest.raises(OSError) as failure:
            storage.open_for_reading(f"{root}/{name}")
        assert failure.value.errno == number


def test_used_bytes(root: Path) -> None:
    assert used_bytes(str(root)) == 7
    (root / "data/large").write_bytes(bytes(1000))
    os.link(root / "data/large", root / "data/same")
    (root / "dev/ours").write_bytes(bytes(5000))
    (root / "dev/incoming/half").write_bytes(bytes(50))
    assert used_bytes(str(root)) == 1057


def test_a_full_flash(root: Path) -> None:
    storage = Storage(root, limit_bytes=1000)
    put(storage, f"{root}/data/a", bytes(900))
    with pytest.raises(OSError) as failure:
        put(storage, f"{root}/data/b", bytes(94))
    assert failure.value.errno == errno.ENOSPC
    assert not (root / "data/b").exists()
    assert not list((root / "dev/incoming").iterdir())
    put(storage, f"{root}/data/b", bytes(93))
    with pytest.raises(OSError) as failure:
        storage.upload(f"{root}/data/c", 0o644)
    assert failure.value.errno == errno.ENOSPC
    (root / "data/a").unlink()
    put(storage, f"{root}/data/c", bytes(900))


@pytest.mark.parametrize(
    ("limit", "fields"),
    [(1024 * 100, ["100", "1", "99", "1%"]), (0, ["0", "1", "0", "100%"])],
)
def test_df(root: Path, limit: int, fields: list[str]) -> None:
    heading, row = df(str(root), limit).splitlines()
    assert heading.startswith("Filesystem")
    assert row.split()[1:] == [*fields, str(root)]
