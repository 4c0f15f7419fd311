"""Scripts on a device: status, streams, bounds, and their certain end."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from harness.core.errors import DeviceTimeout, InternalError
from harness.transport.adb_device import AdbDevice
from harness.transport.shell import END_GRACE_S
from tests.integration.transport.adb.remote import SLACK_S, family, wait_ended
from tests.waiting import wait_for

STATUSES = [
    ("true", 0, None),
    ("exit 7", 7, None),
    ("kill -11 $$", None, 11),
    ("no-such-program", 127, None),
    ("", 0, None),
]


@pytest.mark.parametrize(("script", "code", "number"), STATUSES)
def test_status(any_device: AdbDevice, script: str, code: int | None, number: int | None) -> None:
    completed = any_device.shell(script, timeout_s=60)
    assert (completed.exit_code, completed.signal, completed.truncated) == (code, number, False)
    assert completed.ok == (code == 0)


def test_streams_are_kept_apart_and_binary(device: AdbDevice) -> None:
    completed = device.shell("printf 'a\\0\\r\\n\\377'; printf 'e\\n' >&2; printf b", timeout_s=60)
    assert completed.stdout == b"a\0\r\n\xffb"
    assert completed.stderr == b"e\n"


def test_50_mb_of_input_come_back(device: AdbDevice) -> None:
    data = os.urandom(1 << 20) * 50
    completed = device.shell(
        "cat; echo done >&2; exit 5", stdin=data, timeout_s=60, max_output_bytes=64 << 20
    )
    assert completed.stdout == data
    assert (completed.stderr, completed.exit_code) == (b"done\n", 5)


def test_input_that_nobody_reads_does_not_hold_us(any_device: AdbDevice) -> None:
    assert any_device.shell("exit 6", stdin=bytes(20 << 20), timeout_s=60).exit_code == 6


def test_no_input_is_an_end_of_file(any_device: AdbDevice) -> None:
    assert any_device.shell("read x || echo none", timeout_s=60).stdout == b"none\n"


def test_output_streams_while_the_script_runs(any_device: AdbDevice) -> None:
    pieces: list[tuple[float, bytes]] = []
    completed = any_device.shell(
        "echo one; sleep 0.3; echo two",
        timeout_s=60,
        on_stdout=lambda data: pieces.append((time.monotonic(), data)),
    )
    assert b"".join(data for _, data in pieces) == completed.stdout == b"one\ntwo\n"
    assert pieces[-1][0] - pieces[0][0] > 0.2


def test_endless_output_is_bounded_and_ended(any_device: AdbDevice, folder: str) -> None:
    quoted = shlex.quote(folder)
    script = f"mkdir -p {quoted}; echo $$ >{quoted}/pids; yes; echo never"
    completed = any_device.shell(script, timeout_s=60, max_output_bytes=1_000_000)
    assert (len(completed.stdout), completed.truncated) == (1_000_000, True)
    assert (completed.exit_code, completed.signal) == (None, None)
    wait_ended(any_device, folder, of=1)


def test_the_deadline_ends_the_whole_family(any_device: AdbDevice, folder: str) -> None:
    start = time.monotonic()
    with pytest.raises(DeviceTimeout) as caught:
        any_device.shell(family(folder), timeout_s=1)
    assert time.monotonic() - start < 1 + END_GRACE_S + SLACK_S
    assert caught.value.serial == any_device.serial
    assert caught.value.output == b"ready\n"
    wait_ended(any_device, folder)


def test_output_does_not_put_the_deadline_off(device: AdbDevice) -> None:
    start = time.monotonic()
    with pytest.raises(DeviceTimeout):
        device.shell("while :; do echo x; sleep 0.1; done", timeout_s=0.5)
    assert time.monotonic() - start < 0.5 + END_GRACE_S + SLACK_S


def test_an_error_of_the_callers_passes_and_ends_the_script(
    any_device: AdbDevice, folder: str
) -> None:
    def refuse(_data: bytes) -> None:
        raise ValueError("not this")

    with pytest.raises(ValueError, match="not this"):
        any_device.shell(family(folder), timeout_s=60, on_stdout=refuse)
    wait_ended(any_device, folder)


CALLER = """
import sys
{device}
show = lambda data: print(data.decode(), end="", flush=True)
device.shell(sys.argv[1], timeout_s=60, on_stdout=show)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_caller_that_ends_leaves_nothing(
    any_device: AdbDevice, folder: str, caller: str, number: int
) -> None:
    argv = [sys.executable, "-c", CALLER.format(device=caller), family(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        process.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert any_device.end_leftovers(timeout_s=20)
    wait_ended(any_device, folder)


def test_a_script_too_long_for_adb_is_refused(any_device: AdbDevice) -> None:
    with pytest.raises(InternalError, match="stdin"):
        any_device.shell("true " + "x" * 70_000, timeout_s=60)
    assert any_device.shell("echo " + "x" * 60_000, timeout_s=60).stdout.startswith(b"xxx")


def test_many_calls_from_many_threads(device: AdbDevice) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def ask(number: int) -> bytes:
        return device.shell(f"echo {number}; exit {number % 100}", timeout_s=60).stdout

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(80))) == [b"%d\n" % number for number in range(80)]


def test_calls_leave_no_descriptor_open(any_device: AdbDevice) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    any_device.shell("true", timeout_s=60)
    before = count()
    for _ in range(3):
        any_device.shell("true", timeout_s=60)
        with pytest.raises(DeviceTimeout):
            any_device.shell("sleep 10", timeout_s=0)
    # a thread may still be closing what it had
    wait_for(lambda: count() <= before, seconds=SLACK_S)
