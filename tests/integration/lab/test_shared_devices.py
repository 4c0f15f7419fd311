"""Devices that two computers reach: a lease of one keeps off the other."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from harness.core.errors import DeviceError, InfraError
from harness.lab.inventory import load_lab
from harness.lab.lab_device import LabDevice, OpenLab
from harness.lab.lease import DeviceHeld, LeaseLost, Leases
from harness.results.journal import read_journal
from harness.transport.device_lock import DeviceLock
from tests.integration.device_runs import DeviceRuns, Finished
from tests.integration.lab.ssh_host import SSHD, SshHost

pytestmark = pytest.mark.needs(SSHD)

CASES = '''"""Cases that notice if another one uses their device at the same time."""
import time
import pytest
from harness.probe.plan import Plan, Step


@pytest.mark.device
@pytest.mark.parametrize("number", range(8))
def test_alone(bench, number):
    bench.run(Plan((Step("noop"),))).check()
    device = bench.device.transport
    path = bench.device.workdir + "/in-use"
    assert device.shell(f"mkdir {path}", timeout_s=60).ok, "the device is in use"
    time.sleep(0.3)
    assert device.shell(f"rmdir {path}", timeout_s=60).ok
'''


@contextmanager
def computer(far: SshHost, folder: Path, *, wait_s: float = 0.0) -> Iterator[OpenLab]:
    """The lab as a computer sees it that has leases of its own."""
    folder.mkdir()
    file = folder / "devices.yaml"
    file.write_text(yaml.safe_dump(far.lab()))
    leases = Leases(folder / "leases", purpose=folder.name)
    storage = {"key_folder": folder, "storage_root": folder / "none"}
    with OpenLab(load_lab(file), **storage, leases=leases, lease_wait_s=wait_s) as lab:
        yield lab


@pytest.mark.slow
def test_another_computer_is_kept_off(far: SshHost, tmp_path: Path) -> None:
    with (
        computer(far, tmp_path / "here") as here,
        computer(far, tmp_path / "there", wait_s=60) as there,
    ):
        first, second = here.device("far-0"), there.device("far-0")
        first.attach()
        with computer(far, tmp_path / "third") as third:
            with pytest.raises(DeviceHeld, match=rf"{os.getpid()} \(here\)"):
                third.device("far-0").attach()
            third.device("far-1").attach()  # the other device is free
        attached = threading.Thread(target=second.attach)
        attached.start()
        time.sleep(1)
        assert attached.is_alive()
        first.require_held()
        first.give_back()
        attached.join(60)
        second.require_held()
        assert first.try_acquire() is not None  # now known to be locked there
        first.leave_line()
        second.give_back()
        assert first.try_acquire() is None


@pytest.mark.slow
def test_a_lock_that_could_not_be_asked_for_is_asked_for_again(
    far: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with computer(far, tmp_path / "here") as here, computer(far, tmp_path / "there") as there:
        here.device("far-0").attach()

        def unanswered(lock: DeviceLock, line: bytes, *, wait: bool) -> bool:
            raise DeviceError("no answer in time", serial="far-0", command="lock the device")

        device = there.device("far-0")
        with monkeypatch.context() as broken:
            broken.setattr(DeviceLock, "try_acquire", unanswered)
            device.attach()
        with pytest.raises(LeaseLost, match=r"\(here\)"):
            device.require_held()


@pytest.mark.slow
def test_two_runs_of_two_computers_take_turns(far: SshHost, tmp_path: Path) -> None:
    """Cases notice others on their device; a run waits for a case, not for the other run."""
    runs = DeviceRuns(tmp_path)
    lab = far.lab()
    runs.file.write_text(yaml.safe_dump(lab | {"devices": lab["devices"][:1]}))
    suite = runs.write_suite(CASES)

    def run(name: str) -> Finished:
        leases = str(tmp_path / f"leases-{name}")
        return runs.run("--reports", tmp_path / name, suites=suite, QNN_HARNESS_LEASES=leases)

    with ThreadPoolExecutor(2) as pool:
        finished = list(pool.map(run, ("first", "second")))
    times = []
    for name, each in zip(("first", "second"), finished, strict=True):
        assert each.code == 0, each.output
        journal = read_journal(tmp_path / name / "latest/results.jsonl")
        assert [record.outcome for record in journal.records] == ["passed"] * 8
        times.append([record.started for record in journal.records])
    # they overlapped, and neither had all its cases before the other began
    assert max(min(times[0]), min(times[1])) < min(max(times[0]), max(times[1]))


@pytest.mark.slow
def test_a_cut_link_is_no_lost_lease_unless_another_took_it(far: SshHost, tmp_path: Path) -> None:
    with computer(far, tmp_path / "here") as here, computer(far, tmp_path / "there") as there:
        device = here.device("far-0")
        device.attach()
        far.kill_tunnel()
        lock = device._device_lock
        until(lambda: not lock.is_held())
        until(lambda: holds_again(device))
        until(lambda: is_refused(there.device("far-0")))
        far.kill_tunnel()
        until(lambda: bool(there.device("far-0").attach()))
        with pytest.raises(LeaseLost, match=r"connection was cut, and .*\(there\).* took"):
            device.require_held()
        assert not device.is_held


def holds_again(device: LabDevice) -> bool:
    device.require_held()
    return device._device_lock is not None and device._device_lock.is_held()


def is_refused(device: LabDevice) -> bool:
    try:
        device.attach()
    except DeviceHeld:
        return True
    raise AssertionError("it was given to two computers")


def until(is_so: Callable[[], bool]) -> None:
    """Repeat what may fail while the tunnel is not there again."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(InfraError):
            if is_so():
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)
