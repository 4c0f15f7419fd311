"""Files to and from a device: whole or not at all, and the device's own words when it refuses."""

import os
import shlex
from pathlib import Path

import pytest

from harness.core.errors import DeviceError, DeviceRefused, InfraError
from harness.transport.adb_device import AdbDevice
from harness.transport.files import PushItem

MAX = 1 << 30


def test_there_and_back(any_device: AdbDevice, folder: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_001))
    os.utime(source, (1_600_000_000, 1_600_000_000))
    progress: list[int] = []
    files = [
        PushItem(source, f"{folder}/a/b/c d'e", 0o755),
        PushItem(b"", f"{folder}/empty"),
        PushItem("grüße".encode(), f"{folder}/ü,ber", 0o600),
    ]
    any_device.push(files, timeout_s=60, progress=progress.append)
    assert progress == sorted(progress)
    assert progress[-1] == source.stat().st_size + len("grüße".encode())

    status = any_device.stat(f"{folder}/a/b/c d'e")
    assert (status.size, status.mtime_s) == (source.stat().st_size, 1_600_000_000)
    assert status.is_file
    assert status.mode & 0o700 == 0o700
    for item in files:
        any_device.pull(item.remote, tmp_path / "back", timeout_s=60, max_bytes=MAX)
        content = item.source if isinstance(item.source, bytes) else item.source.read_bytes()
        assert (tmp_path / "back").read_bytes() == content
    any_device.pull(files[0].remote, tmp_path / "back", timeout_s=60, max_bytes=MAX)
    back = (tmp_path / "back").stat()
    assert (int(back.st_mtime), back.st_mode & 0o700) == (1_600_000_000, 0o700)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "source"]


def test_a_file_replaces_the_one_before(any_device: AdbDevice, folder: str) -> None:
    for content in (b"long" * 1000, b"short"):
        any_device.push([PushItem(content, f"{folder}/f")], timeout_s=60)
        status = any_device.stat(f"{folder}/f")
        assert status.size == len(content)


def test_a_link_on_the_device(any_device: AdbDevice, folder: str, tmp_path: Path) -> None:
    any_device.push([PushItem(b"content", f"{folder}/d/file")], timeout_s=60)
    any_device.shell(f"cd {shlex.quote(folder)} && ln -s d/file f && ln -s d e", timeout_s=60)
    any_device.pull(f"{folder}/f", tmp_path / "f", timeout_s=60, max_bytes=7)
    assert (tmp_path / "f").read_bytes() == b"content"
    any_device.pull(f"{folder}/e/file", tmp_path / "e", timeout_s=60, max_bytes=7)
    assert (tmp_path / "e").read_bytes() == b"content"


def test_pull_of_what_is_missing_or_a_folder_leaves_nothing(
    any_device: AdbDevice, folder: str, tmp_path: Path
) -> None:
    any_device.push([PushItem(b"", f"{folder}/file")], timeout_s=60)
    for path, problem in (
        (f"{folder}/nothing", "No such file or directory"),
        (folder, "not a regular file"),
    ):
        with pytest.raises(DeviceRefused, match=problem):
            any_device.pull(path, tmp_path / "x", timeout_s=60, max_bytes=MAX)
    assert list(tmp_path.iterdir()) == []


def test_a_file_larger_than_allowed_is_not_kept(
    any_device: AdbDevice, folder: str, tmp_path: Path
) -> None:
    any_device.push([PushItem(bytes(100_000), f"{folder}/file")], timeout_s=60)
    (tmp_path / "x").write_bytes(b"before")
    with pytest.raises(DeviceError, match="99999"):
        any_device.pull(f"{folder}/file", tmp_path / "x", timeout_s=60, max_bytes=99_999)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x", b"before")]


def test_the_devices_words_are_kept_when_it_refuses(any_device: AdbDevice, folder: str) -> None:
    any_device.push([PushItem(b"x", f"{folder}/file")], timeout_s=60)
    with pytest.raises(DeviceRefused) as caught:
        any_device.push(
            [
                PushItem(b"fine", f"{folder}/first"),
                PushItem(bytes(5 << 20), f"{folder}/file/below"),
                PushItem(b"perhaps", f"{folder}/last"),
            ],
            timeout_s=60,
        )
    # words of the device's own; the wording is its daemon's
    assert any(word in caught.value.problem.lower() for word in ("directory", "exists"))
    assert caught.value.command == f"push {folder}/file/below"
    assert any_device.stat(f"{folder}/first") is not None


def test_a_path_where_nobody_may_write(any_device: AdbDevice) -> None:
    with pytest.raises(DeviceRefused) as caught:
        any_device.push([PushItem(b"x", "/proc/qnn-harness/file")], timeout_s=60)
    assert caught.value.problem


def test_trouble_on_this_host_is_told_as_such(
    any_device: AdbDevice, folder: str, tmp_path: Path
) -> None:
    with pytest.raises(InfraError, match="No such file"):
        any_device.push([PushItem(tmp_path / "nothing", f"{folder}/f")], timeout_s=60)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InfraError, match="not a regular file"):
        any_device.push([PushItem(tmp_path / "fifo", f"{folder}/f")], timeout_s=60)
    any_device.push([PushItem(b"x", f"{folder}/f")], timeout_s=60)
    with pytest.raises(InfraError, match="on this host"):
        any_device.pull(f"{folder}/f", tmp_path / "no" / "x", timeout_s=60, max_bytes=MAX)


@pytest.mark.parametrize("remote", ["", "a\0b", "/" + "x" * 1024])
def test_a_path_that_adb_cannot_carry(any_device: AdbDevice, remote: str, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="not a path"):
        any_device.push([PushItem(b"", remote)], timeout_s=60)
    with pytest.raises(InfraError, match="not a path"):
        any_device.stat(remote)
    with pytest.raises(InfraError, match="not a path"):
        any_device.pull(remote, tmp_path / "f", timeout_s=60, max_bytes=MAX)
