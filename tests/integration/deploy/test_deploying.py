"""Deployment to a simulated device: only what is missing travels, and all of it or nothing."""

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, DeviceRefused, InternalError
from harness.core.notices import followed_by
from harness.deploy.deploy import SMALL_BYTES, Deployer, Push
from harness.runtimes.runtime import deploy_runtime
from tests.integration.conftest import RuntimeFor
from tests.integration.deploy.conftest import CountingDevice, MakeDevice

PROGRAM, INPUT = "qnn-probe", "deep/input.0.raw"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "local"
    folder.mkdir()
    (folder / "probe").write_bytes(b"#!/bin/sh\necho ran\n")
    (folder / "input").write_bytes(os.urandom(100_000))
    return {PROGRAM: folder / "probe", INPUT: folder / "input"}


def deployer(device: CountingDevice) -> Deployer:
    device.reset()
    return Deployer(device, device.workdir)


def leftovers(device: CountingDevice) -> list[Path]:
    workdir = device.local(device.workdir)
    return [*workdir.glob("store/.incoming/*"), *workdir.glob("sets/.*")]


def stored_files(device: CountingDevice) -> list[Path]:
    return [path for path in device.local(device.workdir).glob("store/*") if path.is_file()]


def test_a_runtime_travels_once(
    device: CountingDevice, runtime_for: RuntimeFor, show_figures: Callable[..., None]
) -> None:
    runtime = runtime_for("2.51.0")
    size = sum(file.size for file in runtime.files)
    reports: list[dict[str, object]] = []
    start = time.monotonic()
    with followed_by(lambda device, facts: reports.append(dict(facts))):
        cold = deploy_runtime(deployer(device), runtime)
    cold_s = time.monotonic() - start
    # how far it is grows up to all of what does not go packed with others
    far = [
        (report["done"], report["total"]) for report in reports if report.get("doing") == "pushing"
    ]
    assert [size for size, _ in far] == sorted(size for size, _ in far)
    assert len(set(far)) > 3
    assert far[-1][0] == far[-1][1] == sum(f.size for f in runtime.files if f.size > SMALL_BYTES)
    assert reports[-1] == dict.fromkeys(("doing", "done", "total", "unit"))
    assert (device.scripts, device.pushes, device.pushed_bytes) == (2, 1, size)
    for file in runtime.files:
        assert device.local(cold.root, file.name).read_bytes() == file.path.read_bytes()
    folders = [f"{cold.root}/onnxruntime_qnn", f"{cold.root}/onnxruntime_qnn.libs"]
    assert cold.environment == {
        "LD_LIBRARY_PATH": ":".join(folders),
        "ADSP_LIBRARY_PATH": ";".join(folders),
    }
    assert cold.library("libQnnHtp.so") == f"{folders[0]}/libQnnHtp.so"
    with pytest.raises(ConfigError, match="libQnnCpu"):
        cold.library("libQnnCpu.so")

    warm = deployer(device)
    start = time.monotonic()
    assert deploy_runtime(warm, runtime) == cold
    warm_s = time.monotonic() - start
    assert (device.scripts, device.pushes) == (1, 0)
    assert deploy_runtime(warm, runtime) == cold
    assert device.scripts == 1
    assert leftovers(device) == []
    show_figures(
        "deploy of QNN 2.51.0",
        MB=round(size / 1e6, 1),
        cold_s=f"{cold_s:.2f}",
        warm_s=f"{warm_s:.3f}",
    )


def test_several_sets_travel_together_and_share_their_files(
    device: CountingDevice, files: dict[str, Path]
) -> None:
    mine = deployer(device)
    sets = [mine.file_set(f"set {number}", files) for number in range(20)]
    folders = mine.deploy_sets(sets)
    assert len(set(folders)) == 20
    assert (device.scripts, device.pushes) == (2, 1)
    assert device.pushed_bytes == sum(path.stat().st_size for path in files.values())
    assert len(stored_files(device)) == 2


def test_another_set_of_files_that_are_there_pushes_nothing(
    device: CountingDevice, files: dict[str, Path]
) -> None:
    folder = deployer(device).deploy_files("io-heavy 56mb", files, [PROGRAM])
    assert folder.startswith(f"{device.workdir}/sets/io-heavy-56mb-")
    assert device.local(folder, INPUT).read_bytes() == files[INPUT].read_bytes()
    assert device.shell(f"'{folder}/qnn-probe'", timeout_s=60).stdout == b"ran\n"
    other = deployer(device).deploy_files("two", {PROGRAM: files[PROGRAM]}, [PROGRAM])
    assert (device.scripts, device.pushes) == (2, 0)
    assert os.listdir(device.local(other)) == ["qnn-probe"]


def test_a_local_file_that_changes_is_another_file(
    device: CountingDevice, files: dict[str, Path]
) -> None:
    mine = deployer(device)
    before = mine.deploy_files("one", files)
    files[INPUT].write_bytes(b"changed")
    after = mine.deploy_files("one", files)
    assert before != after
    assert device.local(after, INPUT).read_bytes() == b"changed"


def test_a_device_that_was_wiped(device: CountingDevice, files: dict[str, Path]) -> None:
    mine = deployer(device)
    folder = mine.deploy_files("one", files)
    shutil.rmtree(device.local(device.workdir))
    assert mine.deploy_files("one", files) == folder
    mine.forget()
    assert device.local(mine.deploy_files("one", files), "qnn-probe").exists()
    shutil.rmtree(device.local(device.workdir))
    assert device.local(deployer(device).deploy_files("one", files), "qnn-probe").exists()


def test_a_device_without_room(
    make_device: MakeDevice, runtime_for: RuntimeFor, files: dict[str, Path]
) -> None:
    device = make_device(limit=30_000_000)
    runtime = runtime_for("2.51.0")
    with pytest.raises(DeviceRefused) as caught:
        deploy_runtime(deployer(device), runtime)
    text = str(caught.value)
    assert (text.count("No space left on device"), text.count("\n")) == (1, 0)
    needed, free = (int(number) for number in re.findall(r"(\d+) bytes", text))
    assert needed == sum(file.size for file in runtime.files)
    assert 0 < free < 30_000_000
    assert stored_files(device) == leftovers(device) == []
    assert deployer(device).deploy_files("one", files)


def test_a_device_that_becomes_full_on_the_way(
    make_device: MakeDevice, runtime_for: RuntimeFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = make_device(limit=30_000_000)
    (device.storage / "system/bin/df").write_text("#!/bin/sh\necho no idea\n")
    stat = device.storage / "system/bin/stat"
    stat.write_text(f'#!/bin/sh\n[ "$1" = -f ] || exec {shutil.which("stat")} "$@"\n')
    stat.chmod(0o755)
    pushes: list[Push] = []
    with pytest.raises(DeviceRefused) as caught:
        deploy_runtime(
            Deployer(device, device.workdir, on_push=pushes.append), runtime_for("2.51.0")
        )
    (push,) = pushes
    assert "No space left on device" in (push.problem or "")
    assert str(caught.value).count("No space left on device") == 1
    assert device.pushes == 1
    assert push.size > 0
    assert push.duration_s >= 0
    assert stored_files(device) == leftovers(device) == []


def test_a_file_that_is_damaged_on_the_way_is_pushed_once_more_and_not_twice(
    device: CountingDevice, files: dict[str, Path]
) -> None:
    files[INPUT].write_bytes(b"." * 100_000)
    device.damage_next = 2
    with pytest.raises(DeviceRefused):
        deployer(device).deploy_files("one", files)
    assert device.pushes == 2
    assert leftovers(device) == []
    assert not list(device.local(device.workdir).glob("listed/*"))
    device.damage_next = 1
    folder = deployer(device).deploy_files("one", files)
    assert (device.scripts, device.pushes) == (4, 2)
    assert device.local(folder, INPUT).read_bytes() == files[INPUT].read_bytes()
    assert leftovers(device) == []


def test_names_and_work_folders_that_cannot_be(
    make_device: MakeDevice, files: dict[str, Path]
) -> None:
    device = make_device()
    for name in ("../outside", "/absolute", "$(reboot)", ""):
        with pytest.raises(InternalError):
            deployer(device).deploy_files("one", {name: files[INPUT]})
    for workdir in ("relative", "/a:b", "/a;b", "/a\nb", ""):
        with pytest.raises(ConfigError):
            Deployer(device, workdir)
    assert device.scripts == 0
