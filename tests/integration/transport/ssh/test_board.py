"""A board with sshd alone: what holds of a device by adb holds of it, with a link that is cut."""

import getpass
import json
import os
import shlex
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.errors import DeviceError, DeviceLost, DeviceRefused, DeviceTimeout, InternalError
from harness.transport.files import PushItem
from harness.transport.ssh_board import SshBoard
from harness.transport.ssh_connection import SshLogin
from tests.faults.table import TRANSPORT, Fault
from tests.faults.test_transport import BIG, require_bounded
from tests.integration.device_runs import DeviceRuns
from tests.integration.lab.ssh_host import SshHost
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.integration.transport.adb.remote import SLACK_S, family, wait_ended, wait_ready
from tests.integration.transport.shared_tests import *  # noqa: F403
from tests.waiting import wait_for


def test_what_the_board_says_of_a_push_that_it_refuses(board: SshBoard, folder: str) -> None:
    board.push([PushItem(b"x", f"{folder}/file")], timeout_s=60)
    with pytest.raises(DeviceRefused) as caught:
        board.push([PushItem(b"y", f"{folder}/file/below"), PushItem(b"", "/x")], timeout_s=60)
    assert "Not a directory" in caught.value.problem or "File exists" in caught.value.problem
    assert caught.value.command == f"push {folder}/file/below and 1 more"


def test_many_files_in_one_push(board: SshBoard, folder: str) -> None:
    files = [PushItem(b"%d" % n * n, f"{folder}/{n % 7}/f{n}") for n in range(300)]
    board.push([*files, PushItem(b"long", f"{folder}/{'d' * 120}/{'n' * 200}")], timeout_s=60)
    completed = board.shell(f"cd {folder}&&find . -type f|wc -l&&cat 6/f13", timeout_s=60)
    assert completed.stdout.split() == [b"301", b"13" * 13]
    board.push([], timeout_s=0)


def test_a_script_that_no_command_line_holds(board: SshBoard) -> None:
    with pytest.raises(InternalError, match="stdin"):
        board.shell("true " + "x" * 120_000, timeout_s=60)


def test_a_link_that_is_cut(board: SshBoard, link: FaultyLink, folder: str) -> None:
    """The call is lost, and what it had begun is ended before the next one."""
    with pytest.raises(DeviceLost) as caught:
        board.shell(family(folder), timeout_s=60, on_stdout=lambda _: link.cut())
    assert caught.value.output.startswith(b"ready")
    with pytest.raises(DeviceLost, match="out of reach"):
        board.shell("true", timeout_s=10)
    link.resume()
    wait_ready(board)
    wait_ended(board, folder)


@pytest.mark.slow
def test_a_stalled_connection_is_begun_anew(board: SshBoard, link: FaultyLink) -> None:
    board.shell("true", timeout_s=60)
    link.stall()
    with pytest.raises(DeviceTimeout):
        board.shell("true", timeout_s=0.5)
    link.cut()
    link.resume()
    board.reconnect(timeout_s=20)
    assert board.is_there(timeout_s=20)
    assert board.shell("echo here", timeout_s=60).stdout == b"here\n"


BY_DAY: dict[str, Any] = {"push_cut": ()} | dict.fromkeys(
    ("pull_stalled", "shell_slow", "stat_stalled"), pytest.mark.slow
)
"""Each operation and each kind; the others mostly wait, too, and do so by night."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=BY_DAY.get(fault.name, pytest.mark.nightly)) for fault in TRANSPORT],
    ids=lambda fault: fault.name,
)
def test_the_link_breaks_in_the_middle(
    board: SshBoard, link: FaultyLink, folder: str, tmp_path: Path, fault: Fault
) -> None:
    """As in tests/faults/test_transport.py, where the link is that of an adb server."""
    board.push([PushItem(bytes(BIG), f"{folder}/source")], timeout_s=60)
    require_bounded(board, link, folder, tmp_path, fault, link.resume)


OWN = pytest.mark.parametrize("sshd", ["own"], indirect=True)


@OWN
def test_who_is_not_let_in(board: SshBoard, sshd: SshHost) -> None:
    sshd.trust(known=False)
    with pytest.raises(DeviceError, match=r"Host key verification failed.*`ssh -p \d+ .* true`"):
        board.connect(timeout_s=20)


@OWN
def test_a_login_shell_that_prints(
    board: SshBoard, sshd: SshHost, folder: str, tmp_path: Path
) -> None:
    sshd.force("echo Welcome to the lab; echo 'be nice' >&2")
    board.connect(timeout_s=20)
    completed = board.shell("echo out; echo err >&2; exit 3", timeout_s=60)
    assert (completed.stdout, completed.stderr, completed.exit_code) == (b"out\n", b"err\n", 3)
    board.push([PushItem(b"content", f"{folder}/f")], timeout_s=60)
    board.pull(f"{folder}/f", tmp_path / "f", timeout_s=60, max_bytes=7)
    assert (tmp_path / "f").read_bytes() == b"content"


@pytest.mark.slow
@OWN
def test_a_board_that_allows_no_further_session(board: SshBoard, sshd: SshHost) -> None:
    """It is told, and not got round by a connection of its own."""
    sshd.configure("MaxSessions 1")
    board.connect(timeout_s=20)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(board.shell, "sleep 2; echo first", timeout_s=60)
        time.sleep(0.7)
        with pytest.raises(DeviceLost) as caught:
            board.shell("echo second", timeout_s=60)
        assert first.result().stdout == b"first\n"
    assert b"refused" in caught.value.output
    assert board.shell("echo third", timeout_s=60).stdout == b"third\n"


@OWN
def test_what_a_board_says_of_a_file_is_not_believed(
    board: SshBoard, sshd: SshHost, folder: str, tmp_path: Path
) -> None:
    board.push([PushItem(b"x", f"{folder}/f")], timeout_s=60)
    stat = sshd.there / "stat"
    for answer in ("f" * 20 + " 1 1", "81a4 1 " + "9" * 26, "81a4 -1 1", "81a4", ""):
        stat.write_text(f"#!/bin/sh\necho '{answer}'\n")
        stat.chmod(0o755)
        with pytest.raises(DeviceRefused, match="its stat"):
            board.pull(f"{folder}/f", tmp_path / "x", timeout_s=60, max_bytes=9)
    stat.write_text("#!/bin/sh\necho '81a4 1 99999999999'\n")
    board.pull(f"{folder}/f", tmp_path / "x", timeout_s=60, max_bytes=9)
    tar = sshd.there / "tar"
    tar.write_text("#!/bin/sh\ncat >/dev/null\n")
    tar.chmod(0o755)
    with pytest.raises(DeviceError, match="0 of 1"):
        board.push([PushItem(b"x", f"{folder}/g")], timeout_s=60)


@pytest.mark.slow
@OWN
def test_a_board_that_reboots_slowly(board: SshBoard, sshd: SshHost, tmp_path: Path) -> None:
    mark = tmp_path / "rebooted"
    (sshd.there / "reboot").write_text(f"#!/bin/sh\nsleep 4\ntouch {mark}\n")
    (sshd.there / "reboot").chmod(0o755)
    board.connect(timeout_s=20)
    board.reboot(timeout_s=2)
    wait_for(mark.exists, seconds=SLACK_S)
    (sshd.there / "reboot").write_text("#!/bin/sh\necho 'must be root' >&2\nexit 1\n")
    (sshd.there / "sudo").write_text("#!/bin/sh\nexit 1\n")
    (sshd.there / "sudo").chmod(0o755)
    with pytest.raises(DeviceRefused, match="must be root"):
        board.reboot(timeout_s=20)


@pytest.mark.slow
def test_a_stalled_call_with_much_input_leaves_nothing(board: SshBoard, link: FaultyLink) -> None:
    board.shell("true", timeout_s=60)
    before = threading.active_count()
    link.stall()
    with pytest.raises(DeviceTimeout):
        board.shell("sleep 100", stdin=bytes(20 << 20), timeout_s=1)
    wait_for(lambda: threading.active_count() <= before, seconds=SLACK_S)


def test_a_board_that_is_not_there(link: FaultyLink) -> None:
    board = SshBoard(SshLogin("nobody.invalid"))
    with pytest.raises(DeviceLost, match=r"nobody\.invalid"):
        board.shell("true", timeout_s=30)
    assert not board.is_there(timeout_s=5)


def test_what_is_asked_of_a_file_with_any_name(board: SshBoard, folder: str) -> None:
    path = f"{folder}/-n 'a'\n\"$x\""
    board.push([PushItem(b"12", path, 0o600)], timeout_s=60)
    board.shell(f"ln -s {shlex.quote(path)} {folder}/to;ln -s none {folder}/off", timeout_s=60)
    statuses = [board.stat(path), board.stat(f"{folder}/to")]
    assert [status and (status.size, status.is_file) for status in statuses] == [(2, True)] * 2
    assert board.stat(f"{folder}/off") is None


@pytest.fixture
def lab(sshd: SshHost, link: FaultyLink, tmp_path: Path) -> DeviceRuns:
    """A lab of one board."""
    lab = DeviceRuns(tmp_path)
    described = {
        "name": "board",
        "transport": "ssh",
        "address": f"{getpass.getuser()}@{link.address}",
        "soc": "QCS8550",
        "workdir": str(tmp_path / "board"),
        # it is this computer, which other tests keep busy
        "gate": {"max_temperature_c": 150, "max_busy_percent": 100},
    }
    lab.file.write_text(yaml.safe_dump({"schema": 1, "devices": [described]}))
    lab.environment["PATH"] = os.environ["PATH"]
    return lab


def test_a_board_from_its_address_to_its_health(lab: DeviceRuns, link: FaultyLink) -> None:
    login, written = f"{getpass.getuser()}@{link.address}", lab.folder / "new.yaml"
    lab.qnn_harness("init", "--board", login, "--board", "no.invalid", "--lab", written, code=0)
    (device, simulated) = yaml.safe_load(written.read_text())["devices"]
    assert (device["transport"], device["address"]) == ("ssh", login)
    assert (device["target"], simulated["enabled"]) == ("linux-x64", False)
    assert "no.invalid" in written.read_text()
    again = lab.qnn_harness("init", "--board", "no.invalid", "--lab", lab.folder / "x.yaml")
    assert (again.returncode, "no.invalid" in again.stderr) == (3, True)
    wrong = lab.qnn_harness("init", "--board", "ssh://x", "--lab", lab.folder / "x.yaml")
    assert (wrong.returncode, "'ssh://x'" in wrong.stderr) == (2, True)

    listed = lab.qnn_harness("devices", "list", "--json", "--lab", lab.file)
    (row,) = json.loads(listed.stdout)["devices"]
    assert (row["serial"], row["state"], row["health"]) == (login, "device", "good")
