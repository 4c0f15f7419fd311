"""What several devices of a host behind ssh are pushed goes there once, and stays there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.device.adb.address import SshAddress
from harness.device.adb.device import AdbDevice
from harness.device.adb.server import AdbServer
from harness.device.lab.device_url import ssh_address
from harness.device.store import host_cache
from harness.device.store.deploy import Deployer
from harness.ground.host.deadline import Deadline
from tests.integration.device.adb.faulty_link import FaultyLink
from tests.integration.device.adb.real_adbd import RealDevice
from tests.integration.device.lab.ssh_host import SSHD, SshHost
from tests.integration.device.lab.test_ssh_hosts import until
from tests.logged import Logged
from tests.needed import need

pytestmark = pytest.mark.needs(SSHD)

NIGHT = pytest.mark.nightly
SIZE = 3_000_000
SMALL = 100_000
"""What all else may take on the link, above all small files and the answers of scripts."""

WORKER = """
import sys
from pathlib import Path
from harness.device.lab.device_url import ssh_address
from harness.device.adb.device import AdbDevice
from harness.device.adb.server import AdbServer
from harness.device.store.deploy import Deployer
login, serial, workdir, *files = sys.argv[1:]
sys.stdin.readline()
device = AdbDevice(serial, AdbServer(ssh_address(login)))
files = {Path(one).name: Path(one) for one in files}
print(Deployer(device, workdir).deploy_files("set", files, ["program"]))
"""


class Far:
    """The devices of a host, and what leads there."""

    def __init__(self, host: SshHost, link: FaultyLink) -> None:
        self.host = host
        self.link = link
        self.port = link.address.rpartition(":")[2]
        host.trust(self.port)
        self.login = f"{host.login.rpartition(':')[0]}:{self.port}"
        address = ssh_address(self.login)
        assert address is not None
        self.address: SshAddress = address

    def deployer(self, number: int, **rules: Any) -> Deployer:
        """A new one for a device, as another session would have it."""
        server = AdbServer(replace(self.address, **rules))
        until(server.is_running)
        return Deployer(AdbDevice(self.host.devices[number].address, server), self.workdir(number))

    def workdir(self, number: int) -> str:
        return str(self.host.devices[number].storage / "data/local/tmp/the harness's")

    def deploy(self, number: int, files: dict[str, Path], **rules: Any) -> int:
        """Deploys, sees that all has arrived, and answers how much went over the link for it."""
        deployer = self.deployer(number, **rules)
        before = self.link.carried
        folder = Path(deployer.deploy_files("set", files, ["program"]))
        carried = self.link.carried - before
        for name, path in files.items():
            assert (folder / name).read_bytes() == path.read_bytes()
            assert os.access(folder / name, os.X_OK) == (name == "program")
            # whichever way it came
            assert (folder / name).stat().st_mode & 0o222 == 0
        assert not list(Path(self.workdir(number)).glob("store/.incoming/*"))
        return carried

    def worker(self, number: int, files: dict[str, Path]) -> subprocess.Popen[str]:
        """Another process that deploys to a device as soon as it is told to begin."""
        serial, workdir = self.host.devices[number].address, self.workdir(number)
        command = [sys.executable, "-c", WORKER, self.login, serial, workdir]
        return subprocess.Popen(
            [*command, *map(str, files.values())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.host.kept.iterdir())

    def pushes(self) -> int:
        """How many files its own adb has pushed."""
        calls = self.host.folder / "adb_calls"
        return calls.read_text().count(" push ") if calls.exists() else 0


def begin(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


@pytest.fixture
def uplink(far: SshHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    monkeypatch.setattr(host_cache, "_refusing", set())
    with FaultyLink(f"127.0.0.1:{far.port}") as link:
        yield Far(far, link)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Two that are kept, one of them a program, one that has a push of its own, and a small one."""
    sizes = {"large": SIZE, "program": 500_000, "middle": 70_000, "small": 10}
    return make_files(tmp_path, sizes)


def make_files(folder: Path, sizes: dict[str, int]) -> dict[str, Path]:
    for name, size in sizes.items():
        (folder / name).write_bytes(os.urandom(size))
    return {name: folder / name for name in sizes}


def test_it_goes_there_once_and_not_once_per_device(uplink: Far, files: dict[str, Path]) -> None:
    assert SIZE < uplink.deploy(0, files) < SIZE + 500_000 + 70_000 + SMALL
    assert uplink.deploy(1, files) < 70_000 + SMALL
    assert uplink.pushes() == 4
    assert [len(name) for name in uplink.kept()] in ([64, 66], [66, 64])
    # another session, whose devices have lost theirs
    for number in (0, 1):
        uplink.deployer(number)._store.remove_all(Deadline(60))
        assert uplink.deploy(number, files) < 70_000 + SMALL
    # and one that looks for no cache
    uplink.deployer(0)._store.remove_all(Deadline(60))
    assert uplink.deploy(0, files, cache_mb=0) > SIZE
    assert uplink.pushes() == 8
    # all by one connection
    assert uplink.host.begun() == 1
    assert len(uplink.link._ends) == 2
    # also where ssh had no time to tidy up
    uplink.host.kill_tunnel()
    until(lambda: not uplink.host.tunnels())
    uplink.deployer(1)._store.remove_all(Deadline(60))
    assert uplink.deploy(1, files) < 70_000 + SMALL
    assert uplink.host.begun() == 2
    assert len(uplink.link._ends) == 4


@pytest.mark.needs("QNN_HARNESS_ADBD_ROOT")
def test_a_real_adbd(uplink: Far, files: dict[str, Path], tmp_path: Path) -> None:
    program = Path(os.environ["QNN_HARNESS_ADBD_ROOT"])
    adb, carried = uplink.host.adb.server, []
    for number in (0, 1):
        with RealDevice(program, storage=tmp_path / f"data-{number}") as daemon:
            adb.connect(daemon.address, deadline=Deadline(60))
            device = AdbDevice(daemon.address, AdbServer(uplink.address))
            until(device.server.is_running)
            before = uplink.link.carried
            Deployer(device, "/data/local/tmp/here").deploy_files("set", files, ["program"])
            carried.append(uplink.link.carried - before)
        (folder,) = (tmp_path / f"data-{number}/local/tmp/here/sets").iterdir()
        for name, path in files.items():
            assert (folder / name).read_bytes() == path.read_bytes()
            assert (folder / name).stat().st_mode & 0o777 == (0o555 if name == "program" else 0o444)
    assert carried[0] > SIZE
    assert carried[1] < 70_000 + SMALL
    assert uplink.pushes() == 4


def test_in_other_shells(uplink: Far, files: dict[str, Path]) -> None:
    need("dash")
    (uplink.host.there / "sh").symlink_to(shutil.which("dash") or "")
    assert uplink.deploy(0, files) > SIZE
    assert uplink.deploy(1, files) < 70_000 + SMALL
    (kept, *_) = uplink.host.kept.iterdir()
    kept.chmod(0o644)
    kept.write_bytes(b"")
    uplink.deployer(0)._store.remove_all(Deadline(60))
    uplink.deploy(0, files)
    assert uplink.pushes() == 6


@pytest.mark.parametrize("sessions", [10, pytest.param(1, marks=NIGHT)])
def test_workers_that_need_it_at_once_send_it_once(
    uplink: Far, files: dict[str, Path], sessions: int
) -> None:
    # a host may allow few commands by one connection: ssh takes another one then
    uplink.host.configure(f"MaxSessions {sessions}")
    assert uplink.deployer(0)
    before = uplink.link.carried
    workers = [uplink.worker(number, files) for number in (0, 1)]
    for worker in workers:
        begin(worker)
    for worker in workers:
        folder = Path(worker.communicate(timeout=120)[0].strip())
        assert worker.returncode == 0
        for name, path in files.items():
            assert (folder / name).read_bytes() == path.read_bytes()
    assert uplink.link.carried - before < SIZE + 500_000 + 2 * (70_000 + SMALL)
    assert uplink.pushes() == 4


def test_what_is_damaged_there_is_sent_anew(uplink: Far, files: dict[str, Path]) -> None:
    uplink.deploy(0, files)
    before = uplink.kept()
    (large,) = (path for path in uplink.host.kept.iterdir() if path.stat().st_size == SIZE)
    good = large.read_bytes()
    large.chmod(0o644)
    large.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert SIZE < uplink.deploy(1, files) < SIZE + 70_000 + SMALL
    assert uplink.kept() == before
    assert large.read_bytes() == good


@pytest.mark.slow
def test_what_was_used_longest_ago_makes_room(uplink: Far, tmp_path: Path) -> None:
    sets = [make_files(tmp_path, {f"set-{number}": 900_000}) for number in range(3)]
    for number, one in enumerate(sets[:2]):
        uplink.deploy(0, one, cache_mb=2)
        (kept,) = (path for path in uplink.host.kept.iterdir() if path.stat().st_mtime > 1e9)
        os.utime(kept, (number + 1, number + 1))
    assert len(uplink.kept()) == 2
    assert uplink.deploy(1, sets[0], cache_mb=2) < SMALL  # now the other one is older
    uplink.deploy(0, sets[2], cache_mb=2)
    assert len(uplink.kept()) == 2
    uplink.deployer(0)._store.remove_all(Deadline(60))
    assert uplink.deploy(0, sets[0], cache_mb=2) < SMALL
    assert uplink.deploy(1, sets[1], cache_mb=2) > 900_000
    # what has no room at all is not kept, and nothing goes for it
    before = uplink.kept()
    uplink.deploy(0, make_files(tmp_path, {"too-large": SIZE}), cache_mb=2)
    assert uplink.kept() == before


def in_a_namespace(*mounts: str) -> str:
    script = "; ".join((*mounts, 'exec sh -c "$SSH_ORIGINAL_COMMAND"'))
    return f"mkdir -p ~/.cache; exec unshare --user --map-root-user --mount sh -c '{script}'"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("ln -sf /bin/sh ~/../there/sh; PATH=~/../there", "no sha256sum"),
        pytest.param(
            in_a_namespace("mount -t tmpfs -o size=2m none ~/.cache"),
            "cannot write to /",
            marks=pytest.mark.needs("unshare"),
        ),
    ],
)
def test_a_host_that_cannot_keep_anything(
    uplink: Far, files: dict[str, Path], before: str, said: str, logged: Logged
) -> None:
    uplink.host.force(before)
    for number in (0, 1):
        assert uplink.deploy(number, files) > SIZE
    told = [one for one in logged.progress if one.startswith("nothing is kept on ssh://")]
    assert len(told) == 1
    assert said in told[0]
    assert not uplink.host.kept.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "begin_s", "said"),
    [("exit 1", 60.0, "it ended early"), ("exec cat", 1.0, "not done within 1 s")],
)
def test_a_host_that_runs_no_commands(
    uplink: Far,
    files: dict[str, Path],
    before: str,
    begin_s: float,
    said: str,
    logged: Logged,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_cache, "_BEGIN_S", begin_s)
    uplink.host.force(before)
    assert uplink.deploy(0, files) > SIZE
    told = [
        one for one in logged.progress if f"did not push to {uplink.host.devices[0].address}" in one
    ]
    assert len(told) == 1
    assert said in told[0]


@pytest.mark.slow
def test_a_push_of_the_host_that_fails_halfway(
    uplink: Far, files: dict[str, Path], logged: Logged
) -> None:
    adb = uplink.host.there / "adb"
    half = (
        'case "$*" in *" push "*-x*)\n  for last; do file=$before; before=$last; done\n'
        f'  head -c 1000 "$file" >{uplink.host.folder}/half\n'
        f'  {adb}-itself $1 $2 $3 $4 $5 $6 push {uplink.host.folder}/half "$last"\n'
        "  sleep 1; echo adb: error: no more of it; exit 1;;\nesac\n"
    )
    adb.rename(f"{adb}-itself")
    adb.write_text(f'#!/bin/sh\n{half}exec {adb}-itself "$@"\n')
    adb.chmod(0o755)
    assert uplink.deploy(0, files) > 2 * SIZE  # to the host, and through the tunnel
    assert uplink.pushes() == 2
    (told,) = (one for one in logged.progress if "did not push" in one)
    assert told.endswith("the tunnel is used: adb: error: no more of it")


@pytest.mark.slow
@pytest.mark.parametrize("dies", [pytest.param("worker", marks=NIGHT), "connection"])
def test_what_was_cut_off_does_not_count(uplink: Far, files: dict[str, Path], dies: str) -> None:
    worker = uplink.worker(0, files)
    uplink.link.stall_after(SIZE // 2)
    begin(worker)
    until(lambda: any(path.stat().st_size for path in uplink.host.kept.glob(".put.*")))
    if dies == "worker":
        worker.kill()
    else:
        uplink.link.cut()
    assert worker.wait(120) != 0
    uplink.link.resume()
    until(lambda: not uplink.kept())
    assert uplink.deploy(0, files) > SIZE
    assert uplink.deploy(1, files) < 70_000 + SMALL


@pytest.mark.slow
def test_a_push_ends_there_with_whoever_wants_it(uplink: Far, files: dict[str, Path]) -> None:
    uplink.deploy(0, files)
    adb = uplink.host.there / "adb"
    adb.write_text(f"#!/bin/sh\necho $$ >{uplink.host.folder}/pushing\nexec sleep 3600\n")
    worker = uplink.worker(1, files)
    begin(worker)
    until((uplink.host.folder / "pushing").exists)
    pid = int((uplink.host.folder / "pushing").read_text())
    worker.send_signal(signal.SIGINT)
    assert worker.wait(120) != 0
    until(lambda: not Path(f"/proc/{pid}").exists())
