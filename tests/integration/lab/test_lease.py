"""One holder per device, among real processes and users, however they end."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import InfraError
from harness.lab.lease import DeviceHeld, Leases
from tests.integration.device_runs import DeviceRuns

KEY = "local:R5CX1234"
HOLD = """
import os, sys, time
from pathlib import Path
from harness.lab.lease import Leases
user = int(sys.argv[2])
if user:
    os.setgid(user)
    os.setuid(user)
leases = Leases(Path(sys.argv[1]), purpose="a test")
try:
    leases.take("local:R5CX1234", "phone", wait_s=float(sys.argv[3]))
except Exception as error:
    print(error, flush=True)
    sys.exit(1)
print("holds", flush=True)
time.sleep(float(sys.argv[4]))
"""


@contextmanager
def holding(
    folder: Path, *, user: int = 0, wait_s: float = 0, hold_s: float = 60
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that tries to hold the device, and what it said."""
    arguments = [str(part) for part in (folder, user, wait_s, hold_s)]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"


def test_a_held_device_is_refused_with_the_holders_name(folder: Path) -> None:
    mine = Leases(folder, purpose="mine")
    with holding(folder) as (process, said):
        assert said == "holds"
        with pytest.raises(DeviceHeld, match=rf"phone is held by .*{process.pid} \(a test\)"):
            mine.take(KEY, "phone")
        held = mine.look(KEY)
        assert held is not None
        assert held.holder is not None
        assert held.holder.pid == process.pid
        mine.take("local:another", "tablet")
    mine.close()


def test_a_killed_holder_frees_it_at_once(folder: Path) -> None:
    mine = Leases(folder, purpose="mine")
    with holding(folder) as (process, _):
        process.kill()
        process.wait()
        mine.take(KEY, "phone")
    with holding(folder) as (_, said):
        assert f"{os.getpid()} (mine)" in said
    mine.close()
    assert mine.look(KEY) is None


def test_waiting_ends_when_it_is_free_or_at_the_deadline(folder: Path) -> None:
    mine, told = Leases(folder, purpose="mine"), list[str]()
    with holding(folder, hold_s=1):
        mine.take(KEY, "phone", wait_s=30, notify=told.append)
    assert len(told) == 1
    assert "waiting up to 30 s for device phone" in told[0]
    mine.close()
    with holding(folder):
        began = time.monotonic()
        with pytest.raises(DeviceHeld, match=r"waited 0.5 s"):
            mine.take(KEY, "phone", wait_s=0.5)
        assert 0.5 <= time.monotonic() - began < 10


def test_a_holder_that_was_stopped_is_told_from_one_that_works(folder: Path) -> None:
    mine = Leases(folder, purpose="mine")
    with holding(folder) as (process, _):
        os.kill(process.pid, signal.SIGSTOP)
        (file,) = folder.iterdir()
        long_ago = time.time() - 500
        os.utime(file, (long_ago, long_ago))
        with pytest.raises(DeviceHeld, match="has not moved for 50"):
            mine.take(KEY, "phone")


def test_a_child_does_not_keep_it(folder: Path) -> None:
    mine = Leases(folder, purpose="mine")
    mine.take(KEY, "phone")
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    try:
        mine.close()
        other = Leases(folder, purpose="other")
        other.take(KEY, "phone")
        other.close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_waits_for_the_same_file(folder: Path) -> None:
    folder.parent.chmod(0o755)
    for parent in folder.parents:
        if parent.stat().st_uid == 0 and "pytest" in str(parent):
            parent.chmod(parent.stat().st_mode | 0o055)
    mine = Leases(folder, purpose="mine")
    mine.take(KEY, "phone")
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE(file.stat().st_mode) == 0o666
    with holding(folder, user=65534) as (_, said):
        assert "(mine)" in said
    mine.close()
    with holding(folder, user=65534) as (process, said):
        assert said == "holds"
        with pytest.raises(DeviceHeld, match=str(process.pid)):
            mine.take(KEY, "phone")


def test_one_of_many_gets_it(folder: Path) -> None:
    several = [Leases(folder, purpose=str(number)) for number in range(32)]

    def attempt(leases: Leases) -> bool:
        try:
            leases.take(KEY, "phone")
        except DeviceHeld:
            return False
        return True

    with ThreadPoolExecutor(32) as pool:
        assert sum(pool.map(attempt, several)) == 1
    for leases in several:
        leases.close()


@pytest.mark.parametrize("what", ["link", "folder", "fifo", "garbage"])
def test_what_somebody_put_there(folder: Path, tmp_path: Path, what: str) -> None:
    mine = Leases(folder, purpose="mine")
    mine.take(KEY, "phone")
    (file,) = folder.iterdir()
    mine.close()
    file.unlink()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if what == "garbage":
        file.write_bytes(os.urandom(100_000))
        mine.take(KEY, "phone")
        assert json.loads(file.read_bytes())["pid"] == os.getpid()
        mine.close()
        return
    if what == "link":
        file.symlink_to(victim)
    elif what == "folder":
        file.mkdir()
    else:
        os.mkfifo(file)
    with pytest.raises(InfraError, match="QNN_HARNESS_LEASES"):
        mine.take(KEY, "phone")
    assert victim.read_text() == "precious"


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "leases").symlink_to(tmp_path)
    with pytest.raises(InfraError, match="no folder"):
        Leases(tmp_path / "leases", purpose="mine").take(KEY, "phone")


WAITING_SUITE = '''"""One case that takes its time."""
import pytest
from harness.probe.plan import Plan, Step


@pytest.mark.device
def test_slow(bench):
    bench.run(Plan((Step("sleep", {"ms": "3000"}),))).check()
'''


def test_a_second_run_waits_for_the_first(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "suite" / "test_slow.py"
    suite.parent.mkdir()
    suite.write_text(WAITING_SUITE)
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(lab.run, "--reports", tmp_path / f"reports{number}", suites=suite)
            for number in range(2)
        ]
        done = [run.result() for run in runs]
    assert [run.code for run in done] == [0, 0], [run.output for run in done]
    assert sum("waiting up to 60 s for device sim-v73" in run.output for run in done) == 1


def test_a_run_that_does_not_get_its_device(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "suite" / "test_slow.py"
    suite.parent.mkdir()
    suite.write_text(WAITING_SUITE)
    leases = Leases(lab.folder / "leases", purpose="a person at the desk")
    leases.take(f"simulated:{(lab.folder / 'simulated/sim-v73').resolve()}", "sim-v73")
    done = lab.run("--lease-timeout", "0.5", suites=suite)
    leases.close()
    assert done.code == 3, done.output
    assert "(a person at the desk)" in done.output
    assert not (lab.folder / "quarantine").exists()
