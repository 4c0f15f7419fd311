"""Our own adb server: apart from the user's, and gone when we are."""

import contextlib
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, InfraError
from harness.simulator.private_server import PrivateAdbServer, harness_key
from harness.transport.adb_address import TcpAddress, UnixAddress
from harness.transport.adb_server import AdbServer, adb_binary
from tests.integration.transport.adb.remote import SLACK_S
from tests.unit.core.test_guarded_process import wait_gone

HOLDER = """
import sys, time
from pathlib import Path
from harness.simulator.private_server import PrivateAdbServer
private = PrivateAdbServer(key_folder=Path(sys.argv[1]))
private.start()
print(private.server.address.path, private.pid, flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_us(tmp_path: Path, number: int) -> None:
    argv = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        path, pid = holder.stdout.readline().decode().split()
        assert AdbServer(UnixAddress(path)).is_running()
        (guardian,) = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        holder.send_signal(number)
        holder.wait(60)
        wait_gone([int(pid), int(guardian)], 30)
    assert not Path(path).parent.exists()


def test_the_users_server_home_and_temporary_folder_are_not_touched(tmp_path: Path) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    with contextlib.ExitStack() as stack:
        decoys = [stack.enter_context(socket.create_server(("127.0.0.1", 0)))]
        port = decoys[0].getsockname()[1]
        with contextlib.suppress(OSError):  # a real server of the user's may be there
            decoys.append(stack.enter_context(socket.create_server(("127.0.0.1", 5037))))
        environment = dict(os.environ, HOME=str(home), TMPDIR=str(temporary))
        environment |= {"ANDROID_ADB_SERVER_PORT": str(port), "ADB_VENDOR_KEYS": str(home)}
        environment |= {"ADB_SERVER_SOCKET": f"tcp:127.0.0.1:{port}", "ANDROID_SERIAL": "x"}
        code = (
            "import sys; from pathlib import Path\n"
            "from harness.core.deadline import Deadline\n"
            "from harness.simulator.private_server import PrivateAdbServer\n"
            "from harness.core.errors import InfraError\n"
            "with PrivateAdbServer(key_folder=Path(sys.argv[1])) as private:\n"
            "    print(private.server.devices())\n"
            "    try: private.server.connect('127.0.0.1:1', deadline=Deadline(0.3))\n"
            "    except InfraError as error: print(error)\n"
            "try: private.server\n"
            "except InfraError as error: print(error)\n"
        )
        completed = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "ours")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        for decoy in decoys:
            decoy.setblocking(False)
            with pytest.raises(BlockingIOError):  # nobody came
                decoy.accept()
    assert completed.stdout.splitlines()[0] == "[]"
    assert "Connection refused" in completed.stdout
    assert "not running" in completed.stdout
    assert list(home.iterdir()) == list(temporary.iterdir()) == []
    remaining = {path.name for path in (tmp_path / "ours").rglob("*") if path.is_file()}
    assert remaining == {"adbkey", "adbkey.pub", "adbkey.lock"}


def test_the_key_is_made_once_and_kept_private(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(lambda _: harness_key(tmp_path), range(4)))
    (key,) = keys
    content = key.read_bytes()
    assert b"PRIVATE KEY" in content
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.with_suffix(".pub").read_bytes().strip()
    key.chmod(0o644)
    assert harness_key(tmp_path).read_bytes() == content
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "adb"
    broken.write_text("#!/bin/sh\necho cannot do that >&2\nexit 1\n")
    broken.chmod(0o755)
    private = PrivateAdbServer(key_folder=tmp_path, adb=broken)
    with pytest.raises(InfraError, match="cannot do that"):
        private.start()


def test_the_adb_of_the_wheel_is_used_not_one_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "adb"
    other.write_text("#!/bin/sh\nexit 0\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("ADBUTILS_ADB_PATH", raising=False)
    assert adb_binary() != other
    output = subprocess.run([adb_binary(), "version"], capture_output=True, text=True, check=True)
    assert re.search(r"Version 3[6-9]\.", output.stdout)
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(other))
    assert adb_binary() == other
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="ADBUTILS_ADB_PATH"):
        adb_binary()


def test_the_users_server_is_not_started_by_a_question() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = AdbServer(TcpAddress(port=free.getsockname()[1]))
    with pytest.raises(InfraError, match="start-server"):
        server.devices()
    assert not server.is_running()


REFUSED = [
    ("127.0.0.1:1", 0.4, "Connection refused"),
    ("no-such-host.invalid:5555", 5, "resolve"),
    ("127.0.0.1:port", 5, "bad port"),
]


@pytest.mark.parametrize(("address", "seconds", "why"), REFUSED)
def test_connecting_tells_why_it_failed(
    adb_server: AdbServer, address: str, seconds: float, why: str
) -> None:
    start = time.monotonic()
    with pytest.raises(InfraError, match=why):
        adb_server.connect(address, deadline=Deadline(seconds))
    assert time.monotonic() - start < seconds + SLACK_S
    assert adb_server.devices() == [] or address not in [d.serial for d in adb_server.devices()]
