"""Shell commands through the real adb server and its command line."""

import os
from pathlib import Path

import pytest

from harness.simulator.child import process_table
from tests.integration.simulator.conftest import OnDevice, receive
from tests.waiting import wait_for


def test_exec_in_loses_nothing(shared: OnDevice) -> None:
    """The host closes the stream to say that its input is over; adb does not wait for the end."""
    whole = shared.storage / "whole"
    content = os.urandom(3_000_000)
    completed = shared(
        "exec-in", f"sleep 0.2; cd {shared.storage}; cat > part; mv part whole", stdin=content
    )
    assert completed.returncode == 0
    wait_for(whole.exists, "it is there")
    assert whole.read_bytes() == content


def test_environment_is_clean(shared: OnDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = dict(line.split("=", 1) for line in shared.text("env").splitlines())
    names = {"PATH", "HOME", "TMPDIR", "LANG", "ANDROID_DATA", "ANDROID_ROOT"}
    assert set(lines) - names <= {"PWD", "OLDPWD", "SHLVL", "_"}
    storage = str(shared.storage)
    assert lines["HOME"] == lines["TMPDIR"] == storage
    assert shared.text("pwd") == "/"
    assert shared("shell", "touch here").returncode != 0, "a phone's root cannot be written to"
    assert lines["PATH"].startswith(f"{storage}/system/bin:")
    assert shared.text("trap") == "", "no signal is ignored"
    assert shared("shell", "yes | head -n 1").stdout == b"y\n"


def test_a_command_dies_with_its_stream(shared: OnDevice) -> None:
    script = "echo $$; sleep 1000 >/dev/null 2>&1 & exec sleep 1000"
    stream = shared.adb.open(shared.device.address, f"shell,v2,raw:{script}")
    assert receive(stream, 5)[:1] == b"\x01"
    session = int(stream.recv(100).decode())

    def members() -> int:
        return sum(1 for _, _, of in process_table() if of == session)

    wait_for(lambda: members() == 2, "both run")
    stream.close()
    wait_for(lambda: members() == 0, "both are gone", 5)


def test_what_is_left_in_the_background_ends_with_the_command(shared: OnDevice) -> None:
    pid = int(shared.text("sleep 1000 >/dev/null 2>&1 </dev/null & echo $!"))
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "it is gone", 5)


def test_a_host_that_sends_no_packets_is_dropped(shared: OnDevice) -> None:
    stream = shared.adb.open(shared.device.address, "shell,v2,raw:exec cat")
    with stream:
        stream.sendall(b"\xff" * 8)
        assert stream.recv(1) == b""


@pytest.mark.parametrize("service", ["nonsense:", "tcp:80", "root:"])
def test_unknown_services_are_closed(shared: OnDevice, service: str) -> None:
    with pytest.raises(ConnectionError, match="FAIL"):
        shared.adb.open(shared.device.address, service)


def test_who_its_commands_run_as_is_what_it_says(shared: OnDevice) -> None:
    root = shared.text("id -u") == "0"
    kind = "userdebug" if root else "user"
    assert shared.text("getprop ro.build.type") == kind
    assert f":{kind}/" in shared.text("getprop ro.build.fingerprint")
    assert shared.text("getprop ro.debuggable") == ("1" if root else "0")
    assert shared.text("getprop ro.secure") == ("0" if root else "1")


def test_programs(shared: OnDevice) -> None:
    assert shared.text("getprop ro.soc.model") == "QCS8550"
    assert shared.text("getprop no.such default") == "default"
    table = shared.text("getprop").splitlines()
    assert "[ro.soc.manufacturer]: [QTI]" in table
    assert shared("shell", "setprop debug.x 'a b]'; getprop debug.x").stdout == b"a b]\n"
    assert shared("shell", "setprop ro.soc.model x").returncode == 1
    assert shared.text("getprop ro.soc.model") == "QCS8550"
    assert shared("shell", "command -v oqclc").returncode != 0, "only what prepares GPU has it"


def test_logcat(shared: OnDevice) -> None:
    shared("shell", "log -t MINE 'first line'; true a-command-to-find")
    log = shared("logcat", "-d").stdout.decode()
    assert "I MINE    : first line" in log
    assert "true a-command-to-find" in log
    assert "adbd    : booted: cold" in log
