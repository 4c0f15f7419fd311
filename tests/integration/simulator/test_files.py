"""Files and folders through the real adb server and its command line."""

import os
from pathlib import Path

from tests.integration.simulator.conftest import AdbClient, OnDevice, StartDevice


def make_tree(root: Path) -> None:
    """Files of many sizes, modes and ages, an empty folder, an odd name."""
    for index, (size, mode) in enumerate(((0, 0o600), (65_537, 0o755), (2_500_000, 0o440))):
        path = root / f"a/level-{index}/file {index}"
        path.parent.mkdir(parents=True)
        path.write_bytes(os.urandom(size))
        path.chmod(mode)
        os.utime(path, (1_500_000_000 + index, 1_600_000_000 + index))
    (root / "häßlich 'quoted' $x").write_text("odd")


def described(root: Path) -> dict[str, tuple[bytes, int, int]]:
    files = [(path, path.stat()) for path in root.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(root)): (path.read_bytes(), status.st_mode, int(status.st_mtime))
        for path, status in files
    }


def test_trees(adb: AdbClient, start_device: StartDevice, tmp_path: Path) -> None:
    device = OnDevice(adb, start_device())
    make_tree(tmp_path / "tree")
    remote = device.storage / "data/local/tmp/tree"
    completed = device("push", tmp_path / "tree", remote)
    assert completed.returncode == 0, completed.stderr
    assert described(remote) == described(tmp_path / "tree")
    completed = device("pull", "-a", remote, tmp_path / "back")
    assert completed.returncode == 0, completed.stderr
    assert described(tmp_path / "back") == described(tmp_path / "tree")
    listed = device("ls", remote / "a").stdout.decode().split("\n")
    assert {line.split(" ", 3)[3] for line in listed if line} == {
        *(".", ".."),
        *(f"level-{index}" for index in range(3)),
    }


def test_a_full_flash(adb: AdbClient, start_device: StartDevice, tmp_path: Path) -> None:
    device = OnDevice(adb, start_device(storage_limit_bytes=1_000_000))
    for name, size in (("small", 400_000), ("large", 700_000)):
        (tmp_path / name).write_bytes(os.urandom(size))
    folder = device.storage / "data/local/tmp"
    assert device("push", tmp_path / "small", folder).returncode == 0
    completed = device("push", tmp_path / "large", folder)
    assert completed.returncode == 1
    assert b"No space left on device" in completed.stdout + completed.stderr
    assert [path.name for path in folder.iterdir()] == ["small"]
    assert not list((device.storage / "dev/incoming").iterdir())
    fields = device("shell", "df -k .").stdout.decode().splitlines()[1].split()
    assert fields[1:4] == ["976", "391", "585"]
    device("shell", f"rm {folder}/small")
    assert device("push", tmp_path / "large", folder).returncode == 0
