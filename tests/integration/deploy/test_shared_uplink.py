"""Pushes to devices of one host share what leads there: none waits for another one."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.lab.config_fields import ssh_address
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from harness.transport.files import PushItem
from tests.integration.lab.ssh_host import SSHD, SshHost
from tests.integration.transport.adb.faulty_link import FaultyLink

pytestmark = pytest.mark.needs(SSHD)

LARGE_BYTES = 12_000_000
SMALL_BYTES = 100_000
BYTES_PER_S = 4e6


@pytest.fixture
def throttled(far: SshHost) -> Iterator[list[AdbDevice]]:
    """The devices of a host, with one tunnel to them through a slow link."""
    with FaultyLink(f"127.0.0.1:{far.port}") as link:
        port = link.address.rpartition(":")[2]
        far.trust(port)
        address = ssh_address(f"{far.login.rpartition(':')[0]}:{port}")
        server = AdbServer(address)
        assert server.is_running()
        link.bytes_per_s = BYTES_PER_S
        yield [AdbDevice(device.address, server) for device in far.devices]
        far.kill_tunnel()


@pytest.mark.nightly
@pytest.mark.parametrize("far", [4], indirect=True)
def test_large_pushes_share_alike_and_a_small_one_does_not_wait_for_them(
    far: SshHost, throttled: list[AdbDevice], tmp_path: Path
) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(os.urandom(LARGE_BYTES))
    small.write_bytes(os.urandom(SMALL_BYTES))
    start, ends, started = time.monotonic(), dict[int, float](), threading.Event()

    def push(number: int) -> None:
        item = PushItem(large, str(far.devices[number].storage / "pushed"))
        if number == 3:
            item = replace(item, source=small)
            started.wait(60)
        throttled[number].push([item], timeout_s=300, progress=lambda size: started.set())
        ends[number] = time.monotonic() - start

    threads = [threading.Thread(target=push, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    first, *_, last = sorted(ends[number] for number in range(3))
    assert far.begun() == 1
    assert ends[3] < first
    # one after the other the first of three would need a third of what the last one needs
    assert first > last / 2
