"""Devices behind ssh: one tunnel for all who use them, begun anew when it dies, gone with them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.lab.config_fields import ssh_address
from harness.lab.device_watch import DeviceWatch
from harness.lab.health import DeviceEvent, Quarantine
from harness.lab.inventory import load_lab
from harness.lab.lab_device import OpenLab
from harness.transport.adb_server import AdbServer
from tests.integration.lab.ssh_host import SSHD, SshHost
from tests.waiting import wait_for

pytestmark = pytest.mark.needs(SSHD)

USER = """
import sys
from harness.lab.config_fields import ssh_address
from harness.transport.adb_server import AdbServer
server = AdbServer(ssh_address(sys.argv[1]))
print(sorted(one.serial for one in server.devices()), flush=True)
sys.stdin.read()
"""


def server_of(far: SshHost) -> AdbServer:
    return AdbServer(ssh_address(far.login))


def user_of(far: SshHost) -> subprocess.Popen[str]:
    """Another process that uses the host until its stdin ends."""
    command = [sys.executable, "-c", USER, far.login]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_an_address_in_devices_yaml(far: SshHost, tmp_path: Path) -> None:
    serials = [device.address for device in far.devices]
    file = tmp_path / "devices.yaml"
    file.write_text(yaml.safe_dump(far.lab()))
    with OpenLab(load_lab(file), key_folder=tmp_path, storage_root=tmp_path / "none") as lab:
        for name, serial in (("far-0", serials[0]), ("far-1", serials[1])):
            device = lab.device(name).attach()
            assert (device.transport.serial, device.facts.soc) == (serial, "QCS8550")
            assert device.transport.shell("echo here", timeout_s=60).stdout == b"here\n"
    assert far.begun() == 1


def test_all_processes_share_one_tunnel_and_it_goes_with_the_last(far: SshHost) -> None:
    users = [user_of(far) for _ in range(5)]
    try:
        output = [user.stdout.readline() for user in users if user.stdout]
        assert output == [f"{sorted(device.address for device in far.devices)}\n"] * 5
        assert far.begun() == len(far.tunnels()) == 1
        for user in users[:3]:  # whoever began it is among them, or not
            user.kill()
            user.wait(60)
        last, other = users[3], users[4]
        other.communicate(timeout=60)
        assert len(far.tunnels()) == 1
        os.kill(last.pid, signal.SIGKILL)
        wait_for(lambda: not far.tunnels())
    finally:
        for user in users:
            user.kill()
            user.communicate()
    assert far.begun() == 1


def test_a_tunnel_that_died_is_begun_anew_for_all(far: SshHost) -> None:
    user, server = user_of(far), server_of(far)
    try:
        assert user.stdout.readline()
        assert server.is_running()
        far.kill_tunnel()
        wait_for(lambda: not far.tunnels())
        wait_for(server.is_running)
        assert len(far.tunnels()) == 1
    finally:
        user.kill()
        user.communicate()
    assert server.is_running()
    assert far.begun() == 2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda far: far.trust(known=False), "Host key verification failed"),
        (lambda far: (far.folder / "user_key.pub").write_text(""), "Permission denied"),
        (lambda far: far.stop(), "Connection refused"),
        (lambda far: (far.bin / "ssh").write_text("#!/bin/sh\nexit 9\n"), "ssh ended with 9"),
    ],
)
def test_what_ssh_says_is_told(
    far: SshHost, spoil: Callable[[SshHost], None], message: str
) -> None:
    spoil(far)
    server = server_of(far)
    with pytest.raises(InfraError, match=message) as caught:
        server.devices()
    login, _, port = far.login.partition(":")
    assert f"`ssh -p {port} {login} true`" in str(caught.value)
    tunnels = far.begun()
    with pytest.raises(InfraError, match=message):  # whoever comes next need not try it
        server.devices()
    assert far.begun() == tunnels
    wait_for(lambda: not far.tunnels())


@pytest.mark.slow
def test_an_adb_server_that_is_not_there(far: SshHost) -> None:
    server = server_of(far)
    assert server.is_running()
    far.adb.kill()
    with pytest.raises(InfraError, match="ssh://"):
        server.devices()
    far.adb.start()
    wait_for(server.is_running)
    assert far.begun() == 1


BACK_S = 4


@pytest.mark.slow
def test_a_host_is_waited_for_once_and_brings_its_devices_back(
    far: SshHost, tmp_path: Path
) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(yaml.safe_dump(far.lab() | {"recovery": {"come_back_s": BACK_S}}))
    events: list[DeviceEvent] = []
    now = [0.0]
    with OpenLab(load_lab(file), key_folder=tmp_path, storage_root=tmp_path / "none") as lab:
        watch = DeviceWatch(
            Quarantine(tmp_path / "quarantine"),
            probe_problem=lambda device: None,
            on_event=events.append,
            clock=lambda: now[0],
        )
        for name in ("far-0", "far-1"):
            watch.require(lab.device(name))
        far.stop()
        waited, tunnels = [], far.begun()
        for name in ("far-0", "far-1"):
            start = time.monotonic()
            assert not watch.failed(lab.device(name), case_over=False)
            waited.append(time.monotonic() - start)
        assert waited[0] >= BACK_S > waited[1]
        # who looks does so ever more seldom
        assert far.begun() - tunnels <= 6
        for name in ("far-0", "far-1"):
            with pytest.raises(InfraError, match=name):
                watch.require(lab.device(name))
        far.start()
        deadline, out = Deadline(60), {"far-0", "far-1"}
        while out:
            assert not deadline.expired
            now[0] += 16
            for name in sorted(out):
                with contextlib.suppress(InfraError):
                    watch.require(lab.device(name))
                    out.discard(name)
            time.sleep(0.05)
        assert (
            lab.device("far-1").attach().transport.shell("echo here", timeout_s=60).stdout
            == b"here\n"
        )
    steps = [(event.device, event.event) for event in events if event.event != "health"]
    assert [name for name, event in steps if event == "quarantine"] == ["far-0", "far-1"]
    assert {name for name, event in steps if event == "healed"} == {"far-0", "far-1"}
