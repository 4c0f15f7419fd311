"""Deployments that are cut off, restarted, limited, or not alone on their device."""

import os
import threading
import time
from pathlib import Path

import pytest

from harness.core.errors import DeviceLost
from harness.deploy.deploy import Deployer
from harness.deploy.layout import new_claim
from tests.integration.deploy.conftest import ON_ANDROID, REAL, CountingDevice

FILES, SIZE = 12, 2 << 20


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "local"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.bin").write_bytes(os.urandom(SIZE))
    return {path.name: path for path in sorted(folder.iterdir())}


CLAIM = new_claim()


def deployer(
    device: CountingDevice, cap_bytes: int | None = None, claim: str | None = CLAIM
) -> Deployer:
    """As a run makes them, which keeps its claim when it attaches a device anew."""
    return Deployer(device, device.workdir, cap_bytes=cap_bytes, claim=claim)


def assert_whole(device: CountingDevice, folder: str, files: dict[str, Path]) -> None:
    for name, path in files.items():
        assert device.local(folder, name).read_bytes() == path.read_bytes()
    assert not list(device.local(device.workdir).glob("store/.incoming/*"))


def some(files: dict[str, Path], begin: int, end: int) -> dict[str, Path]:
    return dict(list(files.items())[begin:end])


NIGHT = pytest.mark.nightly
REAL_BY_DAY = pytest.mark.parametrize(
    "device", [pytest.param("simulated", marks=NIGHT), REAL, ON_ANDROID], indirect=True
)


def test_a_push_that_was_cut_is_made_anew(device: CountingDevice, files: dict[str, Path]) -> None:
    device.link.cut_after(int(FILES * SIZE * 0.5))
    start = time.monotonic()
    with pytest.raises(DeviceLost):
        deployer(device).deploy_files("one", files)
    assert time.monotonic() - start < 60
    device.connect()
    assert_whole(device, deployer(device).deploy_files("one", files), files)


def test_two_hosts_at_once(device: CountingDevice, files: dict[str, Path]) -> None:
    """They share half of their files, come at the same moment, and one has hardly any room."""
    theirs = {0: some(files, 0, 8), 1: some(files, 4, FILES)}
    folders: dict[int, str] = {}
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = deployer(device, cap_bytes=None if number else SIZE * 9, claim=None)
            for name in ("one", "two", "three"):
                folders[number] = mine.deploy_files(f"{name}-{number}", theirs[number])
                if name != "three":
                    mine.release()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in theirs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    for number, folder in folders.items():
        assert_whole(device, folder, theirs[number])


def test_a_limited_store_makes_room_for_what_comes(
    device: CountingDevice, files: dict[str, Path]
) -> None:
    cap = SIZE * 5
    for number in range(FILES // 4):
        mine = deployer(device, cap_bytes=cap)
        part = some(files, number * 4, number * 4 + 4)
        assert_whole(device, mine.deploy_files(f"set-{number}", part), part)
        stored = [
            path for path in device.local(device.workdir, "store").iterdir() if path.is_file()
        ]
        assert sum(path.stat().st_size for path in stored) <= cap
        mine.release()


@pytest.mark.slow
@REAL_BY_DAY
def test_letting_go_of_a_device_that_is_gone(
    device: CountingDevice, files: dict[str, Path]
) -> None:
    mine = deployer(device)
    mine.deploy_files("one", some(files, 0, 1))
    device.link.stall()
    start = time.monotonic()
    mine.release()
    assert time.monotonic() - start < 60
    device.link.cut()
    mine.release()
