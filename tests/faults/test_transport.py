"""A link that is cut, stalls or crawls in the middle of an operation of the transport."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import InfraError
from harness.transport.adb_device import AdbDevice
from harness.transport.device import Transport
from harness.transport.files import PushItem
from harness.transport.shell import END_GRACE_S
from tests.faults.breakable import BreakableLab
from tests.faults.conftest import daemon_parameters
from tests.faults.table import ALL, ANDROID, SIMULATED, TRANSPORT, Fault
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.integration.transport.adb.remote import SLACK_S, wait_ready

BIG = 4 << 20
AFTER = 1 << 20
ROWS = [
    parameter
    for daemon in ALL
    for fault in TRANSPORT
    for parameter in daemon_parameters((daemon,), fault, by_night=(SIMULATED, ANDROID))
]


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], BreakableLab]]:
    """A lab per kind of daemon, with a file to be pulled."""
    open_labs: dict[str, BreakableLab] = {}

    def get(daemon: str) -> BreakableLab:
        if daemon not in open_labs:
            lab = BreakableLab(tmp_path_factory.mktemp(f"link-{daemon}"), daemon, None)
            open_labs[daemon] = lab.__enter__()
            lab.carry_out("heal")
            source = PushItem(bytes(BIG), f"{lab.workdir}/source")
            AdbDevice(lab.link.address, lab.server).push([source], timeout_s=20)
        return open_labs[daemon]

    yield get
    for lab in open_labs.values():
        lab.__exit__()


@pytest.mark.slow
@pytest.mark.parametrize(("daemon", "fault"), ROWS)
def test_the_link_breaks(
    labs: Callable[[str], BreakableLab], daemon: str, fault: Fault, tmp_path: Path
) -> None:
    lab = labs(daemon)
    lab.carry_out("heal")
    device = AdbDevice(lab.link.address, lab.server)
    wait_ready(device)
    require_bounded(device, lab.link, lab.workdir, tmp_path, fault, lambda: lab.carry_out("heal"))


def require_bounded(
    device: Transport,
    link: FaultyLink,
    workdir: str,
    folder: Path,
    fault: Fault,
    heal: Callable[[], object],
) -> None:
    """Break the link within an operation, which ends in time and leaves nothing behind."""
    operation, _, kind = fault.name.partition("_")
    act = operations(device, workdir, folder / "pulled", fault.deadline_s)[operation]
    inject(link, operation, kind)
    start = time.monotonic()
    try:
        if fault.outcome == "passed":
            act()
        else:
            with pytest.raises(InfraError, match=fault.said or ".") as caught:
                act()
            assert caught.value.cause == fault.cause
            assert link.address in str(caught.value)
    finally:
        elapsed_s = time.monotonic() - start
        heal()
    assert elapsed_s < fault.deadline_s + SLACK_S + (END_GRACE_S if operation == "shell" else 0)
    assert list(folder.iterdir()) == []
    wait_ready(device, timeout_s=60)
    assert device.end_abandoned(timeout_s=SLACK_S)
    script = "for p in /proc/[0-9]*;do tr '\\0' ' ' <$p/cmdline;echo;done 2>/dev/null"
    assert f"sleep {SECONDS}" not in device.shell(script, timeout_s=20).stdout.decode()


SECONDS = 1_000_000 + os.getpid()  # a simulated device shows the processes of other tests, too


def operations(
    device: Transport, workdir: str, local: Path, seconds: float
) -> dict[str, Callable[[], Any]]:
    endless = f"sleep {SECONDS} & cat /dev/zero"
    item = PushItem(bytes(BIG), f"{workdir}/pushed")
    return {
        "push": lambda: device.push([item], timeout_s=seconds),
        "pull": lambda: device.pull(f"{workdir}/source", local, timeout_s=seconds, max_bytes=BIG),
        "shell": lambda: device.shell(endless, timeout_s=seconds, max_output_bytes=1 << 40),
        "stat": lambda: [device.stat(workdir, timeout_s=seconds) for _ in range(50)],
    }


def inject(link: FaultyLink, operation: str, kind: str) -> None:
    """Breaks the link in the middle of what passes; a stat, which is short, while it is asked."""
    count = 100 if operation == "stat" else AFTER
    match kind:
        case "cut":
            link.cut_after(count)
        case "stalled":
            link.stall_after(count)
        case "slow":
            link.bytes_per_s = 50e3
