"""One holder per device, among real processes and users, however they end."""

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
from queue import SimpleQueue

import pytest

from harness.core.errors import InfraError
from harness.lab import lease as lease_module
from harness.lab.device_config import device_address
from harness.lab.lease import DeviceHeld, LeaseLost, Leases, device_file, find_holding
from tests.faults.breakable import KeptServer
from tests.integration.device_runs import DeviceRuns
from tests.integration.lab.simulated import simulated
from tests.logged import Logged

KEY = "local:R5CX1234"
HOLD = """
import os, sys, time
from pathlib import Path
from harness.lab.lease import Leases
from harness.core.bounded_json import parse_json
parse_json("0")  # the account may not read what it imports
user = int(sys.argv[2])
if user:
    os.setgid(user)
    os.setuid(user)
leases = Leases(Path(sys.argv[1]), purpose="a test")
try:
    leases.acquire("local:R5CX1234", "phone", wait_s=float(sys.argv[3]))
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
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"


def test_a_held_device_names_its_holder_and_is_free_once_that_is_killed(folder: Path) -> None:
    mine = Leases(folder, purpose="mine")
    with holding(folder) as (process, line):
        assert line == "holds"
        with pytest.raises(DeviceHeld, match=rf"{process.pid} \(a test\)") as held:
            mine.acquire(KEY, "phone")
        assert held.value.holding.holder.pid == process.pid
        mine.acquire("local:another", "tablet")
        process.kill()
        process.wait()
        mine.acquire(KEY, "phone")
    with holding(folder) as (_, line):
        assert f"{os.getpid()} (mine)" in line
    mine.close()
    assert find_holding(folder / device_file(KEY)) is None


def test_a_child_does_not_keep_it(folder: Path) -> None:
    mine = Leases(folder, purpose="mine")
    mine.acquire(KEY, "phone")
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    try:
        mine.close()
        other = Leases(folder, purpose="other")
        other.acquire(KEY, "phone")
        other.close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.needs("root")
def test_another_user_waits_for_the_same_file(folder: Path) -> None:
    folder.parent.chmod(0o755)
    for parent in folder.parents:
        if parent.stat().st_uid == 0 and "pytest" in str(parent):
            parent.chmod(parent.stat().st_mode | 0o055)
    mine = Leases(folder, purpose="mine")
    mine.acquire(KEY, "phone")
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE(file.stat().st_mode) == 0o666
    with holding(folder, user=65534) as (_, line):
        assert "(mine)" in line
    mine.close()
    with holding(folder, user=65534) as (process, line):
        assert line == "holds"
        with pytest.raises(DeviceHeld, match=str(process.pid)):
            mine.acquire(KEY, "phone")


def test_one_of_many_gets_it(folder: Path) -> None:
    several = [Leases(folder, purpose=str(number)) for number in range(32)]

    def attempt(leases: Leases) -> bool:
        try:
            leases.acquire(KEY, "phone")
        except DeviceHeld:
            return False
        return True

    with ThreadPoolExecutor(32) as pool:
        assert sum(pool.map(attempt, several)) == 1
    for leases in several:
        leases.close()


@pytest.mark.parametrize("kind", ["link", "second-name", "folder", "fifo", "garbage"])
def test_what_somebody_put_there(folder: Path, tmp_path: Path, kind: str) -> None:
    mine = Leases(folder, purpose="mine")
    mine.acquire(KEY, "phone")
    (file,) = folder.iterdir()
    mine.close()
    assert not file.exists()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if kind == "garbage":
        file.write_bytes(os.urandom(100_000))
        mine.acquire(KEY, "phone")
        assert json.loads(file.read_bytes())["pid"] == os.getpid()
        mine.close()
        return
    if kind == "link":
        file.symlink_to(victim)
    elif kind == "second-name":
        os.link(victim, file)
    elif kind == "folder":
        file.mkdir()
    else:
        os.mkfifo(file)
    with pytest.raises(InfraError, match="QNN_HARNESS_LEASES"):
        mine.acquire(KEY, "phone")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("way", ["removed", "replaced", "folder-renamed"])
def test_who_lost_its_lease_is_told_and_gives_up(
    folder: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.02)
    warnings = SimpleQueue[str]()
    monkeypatch.setattr(lease_module._log, "warning", warnings.put)
    mine, other = Leases(folder, purpose="mine"), Leases(folder, purpose="other")
    mine.acquire(KEY, "phone")
    mine.require(KEY)
    (file,) = folder.iterdir()
    match way:
        case "removed":
            file.unlink()
        case "replaced":
            (folder / "new").touch()
            (folder / "new").rename(file)
        case "folder-renamed":
            folder.rename(folder.with_name("away"))
    assert "phone" in warnings.get(timeout=60)
    other.acquire(KEY, "phone")
    with pytest.raises(LeaseLost):
        mine.require(KEY)
    mine.free(KEY)
    with pytest.raises(DeviceHeld, match=r"\(other\)"):
        mine.acquire(KEY, "phone")
    other.require(KEY)
    other.close()
    mine.acquire(KEY, "phone")
    mine.require(KEY)
    mine.close()
    assert warnings.empty()  # who lets go has lost nothing


def test_a_lost_lease_stays_lost_when_its_file_is_put_back(folder: Path, logged: Logged) -> None:
    """Meanwhile another process may have held the device."""
    mine = Leases(folder, purpose="mine")
    mine.acquire(KEY, "phone")
    (file,) = folder.iterdir()
    away = file.rename(folder / "away")
    with pytest.raises(LeaseLost):
        mine.require(KEY)
    away.rename(file)
    with pytest.raises(LeaseLost):
        mine.require(KEY)
    assert len(logged.warnings) == 1
    mine.close()


def test_a_file_that_goes_while_it_is_locked_is_no_lease(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, real_lock = Leases(folder, purpose="mine"), lease_module._lock
    file = folder / device_file(KEY)

    def late_lock(descriptor: int) -> bool:
        monkeypatch.setattr(lease_module, "_lock", real_lock)
        file.unlink()
        return real_lock(descriptor)

    monkeypatch.setattr(lease_module, "_lock", late_lock)
    mine.acquire(KEY, "phone")
    mine.require(KEY)
    with pytest.raises(DeviceHeld):
        Leases(folder, purpose="other").acquire(KEY, "phone")
    mine.close()


@pytest.mark.parametrize(
    ("mode", "owner", "safe"),
    [
        (0o777, None, False),
        (0o775, None, False),
        (0o755, 4711, False),
        (0o1775, 4711, False),
        (0o1777, 4711, True),
        (0o755, None, True),
    ],
)
def test_a_folder_that_others_can_take_leases_from(
    folder: Path, mode: int, owner: int | None, safe: bool
) -> None:
    folder.mkdir()
    folder.chmod(mode)
    if owner is not None:
        if os.getuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(folder, owner, -1)
    mine = Leases(folder, purpose="mine")
    if safe:
        mine.acquire(KEY, "phone")
        mine.close()
        return
    with pytest.raises(InfraError):
        mine.acquire(KEY, "phone")
    assert not list(folder.iterdir())


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "leases").symlink_to(tmp_path)
    with pytest.raises(InfraError):
        Leases(tmp_path / "leases", purpose="mine").acquire(KEY, "phone")


MEETING_SUITE = '''"""Ends only while another run is at the same case."""
import os
import time
from pathlib import Path
import pytest
from harness.probe.plan import Plan, Step


@pytest.mark.device
def test_meeting(bench):
    bench.run(Plan((Step("noop"),))).check()
    here = Path(os.environ["HERE"])
    here.touch()
    until = time.monotonic() + 200
    while len(list(here.parent.iterdir())) < 2:
        assert time.monotonic() < until, "the other run did not come"
        time.sleep(0.02)
'''


def written(folder: Path, text: str) -> Path:
    file = folder / "suite" / "test_it.py"
    file.parent.mkdir()
    file.write_text(text)
    return file


@pytest.mark.slow
def test_two_runs_use_a_simulated_device_at_the_same_time(lab: DeviceRuns, tmp_path: Path) -> None:
    """Neither waits for the other, nor for the device that somebody has at their desk."""
    suite = written(tmp_path, MEETING_SUITE)
    (tmp_path / "here").mkdir()
    leases = Leases(lab.folder / "leases", purpose="a person at the desk")
    leases.acquire(f"simulated:{(lab.folder / 'simulated/sim-v73').resolve()}", "sim-v73")
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(
                lab.run,
                *("--reports", tmp_path / f"reports{number}"),
                suites=suite,
                HERE=str(tmp_path / "here" / str(number)),
            )
            for number in range(2)
        ]
        completed = [run.result() for run in runs]
    leases.close()
    assert [run.code for run in completed] == [0, 0], [run.output for run in completed]
    assert not any("waiting" in run.output for run in completed)
    assert not any((lab.folder / "simulated/.runs").iterdir())


@pytest.fixture
def held_device(lab: DeviceRuns) -> Iterator[tuple[DeviceRuns, str]]:
    """A lab whose device has an address that stays, as real ones have, and the key of its lease."""
    home = lab.folder / "home"
    server = KeptServer(home)
    with simulated("kept", lab.folder / "kept", home) as device:
        server.start()
        address = device.address
        host = {"name": "here", "host": "127.0.0.1", "port": server.port}
        entry = {"name": "kept", "serial": address, "host": "here", "target": "linux-x64"}
        entry |= {"soc": "QCS8550", "workdir": str(lab.folder / "kept/work")}
        lab.file.write_text(json.dumps({"schema": 1, "hosts": [host], "devices": [entry]}))
        yield lab, device_address(address, "127.0.0.1", server.port)
        server.stop()


def test_a_run_that_does_not_get_its_device(
    held_device: tuple[DeviceRuns, str], tmp_path: Path
) -> None:
    lab, key = held_device
    suite = written(tmp_path, MEETING_SUITE)
    leases = Leases(lab.folder / "leases", purpose="a person at the desk")
    leases.acquire(key, "kept")
    finished = lab.run("-o", "qnn_lease_timeout=1s", suites=suite)
    leases.close()
    assert finished.code == 3, finished.output
    assert "(a person at the desk)" in finished.output
    assert not list((lab.folder / "quarantine").glob("*"))


LOSING_SUITE = '''"""Cases that lose their lease while they run; one to another process."""
import os
from pathlib import Path
import pytest
from harness.lab.lease import device_file
from harness.lab.lease import Leases
from harness.probe.plan import Plan, Step

LEASES = Path(os.environ["QNN_HARNESS_LEASES"])
THIEF = Leases(LEASES, purpose="a thief")
SEEN = set()


@pytest.mark.device
@pytest.mark.parametrize("how", ["removed", "taken"])
def test_losing(bench, how):
    bench.run(Plan((Step("noop"),))).check()
    if how in SEEN:
        return
    SEEN.add(how)
    (LEASES / device_file(os.environ["LEASE_KEY"])).unlink()
    if how == "taken":
        THIEF.acquire(os.environ["LEASE_KEY"], "it")
    else:
        pytest.fail("whatever a case finds then, it shared its device")
'''


@pytest.mark.slow
def test_a_case_that_lost_its_lease_has_no_verdict(
    held_device: tuple[DeviceRuns, str], tmp_path: Path
) -> None:
    lab, key = held_device
    suite = written(tmp_path, LOSING_SUITE)
    finished = lab.run("-o", "qnn_lease_timeout=0s", suites=suite, LEASE_KEY=key, code=3)
    ends = [(case["axes"]["how"], case["outcome"], case["cause"]) for case in finished.cases]
    assert ends == [
        ("removed", "error", "infra"),
        ("removed", "passed", None),
        ("taken", "error", "infra"),
    ], finished.output
    assert not list((lab.folder / "quarantine").glob("*"))
