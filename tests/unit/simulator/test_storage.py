"""Access to the storage folder, and its limit."""

import errno
import os
from pathlib import Path

import pytest

from harness.simulator.storage import Storage


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


@pytest.mark.parametrize(
    "path",
    [
        "{root}/../outside/secret",
        "{root}/data/out/secret",
        "{root}/data/out/new",
        "{root}-2",
        "..",
        "../outside/secret",
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
    ],
)
def test_paths_inside(root: Path, path: str, real: str, entry: str) -> None:
    storage, full = Storage(root), path.format(root=root)
    assert Path(storage.resolve(full)) == root / real
    assert Path(storage.resolve_entry(full)) == root / entry


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
