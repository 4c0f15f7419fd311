"""Processes that a call left: found, with the device's own clock, and ended, in every shell."""

import contextlib
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from hypothesis import given

from harness.transport.shell import RemoteProcesses, end_script, find_script, parse_processes
from harness.transport.shell_protocol import TOKEN_VARIABLE, Banner, v2_script
from tests.properties import damaged, reached, reaches
from tests.unit.transport.test_shell_protocol import SHELLS

TOKEN = secrets.token_hex(10)  # what carries it is looked for on the whole computer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", RemoteProcesses()),
        (b"looked 12.34\nended\n", RemoteProcesses(12.34, {}, True)),
        (
            b"found 7 S\nfound 81 T\nlooked 12.34\n",
            RemoteProcesses(12.34, {7: "S", 81: "T"}, False),
        ),
        (b"found 7 S\r\nlooked 12.34\r\nended\r\n", RemoteProcesses(12.34, {7: "S"}, True)),
        (b"found 7 x\nfound 8 Z\nlooked 12.34\nended\n", RemoteProcesses(12.34, {}, True)),
        (b"found 7 S\n", RemoteProcesses()),
        (b"found 7 S\nlooked 12.3", RemoteProcesses()),
        (b"sh: not found\nlooked 1.00\nnot ended\n", RemoteProcesses(1.0, {}, False)),
        (b"looked 1.00\nfound 7 S\n", RemoteProcesses(1.0, {}, False)),
    ],
)
def test_what_is_said_is_believed_if_it_is_whole(answer: bytes, expected: RemoteProcesses) -> None:
    assert parse_processes(answer) == expected


@reaches(0.1)
@given(damaged("found 7 S\nfound 81 T\nlooked 12.34\nended\n"))
def test_nothing_that_is_said_raises(answer: str) -> None:
    parsed = parse_processes(answer.encode())
    if parsed.states:
        reached()
    for pid, state in parsed.states.items():
        assert re.search(rf"^found 0*{pid} {state}\r*$", answer, re.MULTILINE)
    assert parsed.uptime_s is None or "looked" in answer


@contextlib.contextmanager
def endless_call(shell: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A call that computes for ever, under way; it is gone afterwards, also if it was stopped."""
    with subprocess.Popen(
        [*shell, "-c", v2_script("echo up; while :; do :; done", TOKEN)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as call:
        try:
            call.stdout.readline()
            yield call
        finally:
            call.kill()


def told_by(shell: list[str], script: str) -> RemoteProcesses:
    completed = subprocess.run([*shell, "-c", script], capture_output=True, timeout=60, check=False)
    return parse_processes(completed.stdout)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_stopped_call_is_found_and_stays(shell: list[str]) -> None:
    with endless_call(shell) as call:
        os.kill(call.pid, signal.SIGSTOP)
        # a busy computer takes its time to stop it
        os.waitid(os.P_PID, call.pid, os.WSTOPPED | os.WNOWAIT)
        before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        parsed = told_by(shell, find_script(TOKEN))
        assert (dict(parsed.states), parsed.ended) == ({call.pid: "T"}, False)
        # /proc/uptime has hundredths
        assert before_s - 0.02 <= parsed.uptime_s <= time.clock_gettime(time.CLOCK_BOOTTIME)
        assert call.poll() is None


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_everything_a_call_started_is_ended(shell: list[str]) -> None:
    script = "echo up; env -i sleep 4321 & setsid sleep 4321 & sleep 4321; true"
    with subprocess.Popen(
        [*shell, "-c", v2_script(script, TOKEN)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as call:
        call.stdout.readline()
        banner = Banner(TOKEN)
        banner.feed(call.stderr.readline())
        parsed = told_by(shell, end_script(TOKEN, banner.group))
        # its pipes close only when the last of them is gone
        assert call.stdout.read() == b""
    assert (parsed.ended, call.pid in parsed.states) == (True, True)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_call_is_found_without_its_group(shell: list[str]) -> None:
    with endless_call(shell) as call:
        parsed = told_by(shell, end_script(TOKEN, None))
        assert call.wait(60) == -9
    assert (parsed.ended, list(parsed.states)) == (True, [call.pid])


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_process_is_found_while_it_becomes_another_program(shell: list[str]) -> None:
    """Inside execve it has neither an environment nor a command line."""
    for _ in range(15):
        with subprocess.Popen(
            ["env"] * 9 + ["sleep", "4321"], env={**os.environ, TOKEN_VARIABLE: TOKEN}
        ) as call:
            try:
                assert told_by(shell, end_script(TOKEN, None)).ended
                assert call.wait(60) == -9
            finally:
                call.kill()
