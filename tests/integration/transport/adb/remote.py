"""Questions to a device about the processes that a call left behind."""

import shlex
import time

from harness.core.errors import InfraError
from harness.transport.device import Transport
from tests.waiting import wait_for

SLACK_S = 30.0
"""What a busy machine may add to a deadline: far less than what runs without one would take."""


def family(folder: str) -> str:
    """A script that starts children of three kinds, notes all pids in a file, and never ends.

    One stays in the process group, one leaves it with an empty environment inside, one is a
    grandchild of a child that has ended.
    """
    quoted = shlex.quote(folder)
    return (
        f"mkdir -p {quoted};cd {quoted};echo $$ >pids;"
        "sleep 1000 & echo $! >>pids;"
        "setsid sh -c 'echo $$ >>pids;exec sleep 1000' &"
        "sh -c 'sh -c \"echo \\$\\$ >>pids;exec env -i sleep 1000\" & exit' ;"
        "while [ $(wc -l <pids) -lt 4 ];do :;done;echo ready;sleep 1000;true"
    )


def survivors(device: Transport, folder: str, *, of: int = 4) -> list[str]:
    """Those pids in the file, which has so many, that are still running."""
    script = (
        f"cd {shlex.quote(folder)}&&wc -l <pids&&while read p;do "
        'read s <"/proc/$p/stat"&&case ${s##*) } in Z*);;*) echo $p;;esac;done <pids 2>/dev/null'
    )
    answer = device.shell(script, timeout_s=60)
    count, *alive = answer.stdout.decode().split()
    assert int(count) == of
    return alive


def wait_ended(device: Transport, folder: str, *, of: int = 4) -> None:
    """Wait for the end of what was killed: a busy device may take longer than the call."""
    wait_for(lambda: not survivors(device, folder, of=of), "the processes end", SLACK_S)


def wait_ready(device: Transport, *, timeout_s: float = 10) -> None:
    """Waits until the device's shell answers again."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            device.shell("true", timeout_s=60)
            return
        except InfraError:
            if time.monotonic() >= until:
                raise
        time.sleep(0.1)
